/* core/image/webp.c - WebP through libwebp; of an animation the first frame, on a clear canvas. */
#include "core/image/decode.h"

#ifndef GODWIT_WEBP
gw_status gw_webp_read(const gw_encoded *in, gw_raster *out) {
    (void)out;
    return gw_fail(GW_E_UNSUPPORTED, in->where,
                   "is a WebP file, and this build has no libwebp; build it with libwebp-dev");
}
#else

#include <stdlib.h>
#include <string.h>

#include <webp/decode.h>
#include <webp/demux.h>

static int exif_of(const WebPDemuxer *file) {
    WebPChunkIterator chunk;
    int orientation = 1;
    if (WebPDemuxGetChunk(file, "EXIF", 1, &chunk)) {
        orientation = gw_exif_orientation(chunk.chunk.bytes, chunk.chunk.size);
        WebPDemuxReleaseChunkIterator(&chunk);
    }
    return orientation;
}

/* The frame's pixels into its place in *out, whose pixels are there. */
static gw_status read_frame(const gw_encoded *in, const WebPIterator *frame, gw_raster *out) {
    WebPDecoderConfig config;
    if (!WebPInitDecoderConfig(&config)) {
        return gw_fail(GW_E_UNSUPPORTED, in->where, "is a WebP, and libwebp is of another version");
    }
    size_t c = (size_t)out->channels, row = (size_t)out->width * c;
    size_t start = (size_t)frame->y_offset * row + (size_t)frame->x_offset * c;
    config.output.colorspace = c == 4 ? MODE_RGBA : MODE_RGB;
    config.output.is_external_memory = 1;
    config.output.u.RGBA.rgba = out->pixels + start;
    config.output.u.RGBA.stride = (int)row;
    config.output.u.RGBA.size = row * (size_t)out->height - start;
    VP8StatusCode code = WebPDecode(frame->fragment.bytes, frame->fragment.size, &config);
    WebPFreeDecBuffer(&config.output);
    if (code == VP8_STATUS_OK) {
        return GW_OK;
    }
    if (code == VP8_STATUS_OUT_OF_MEMORY) {
        return gw_fail(GW_E_NOMEM, in->where, "no memory to decode a WebP");
    }
    int cut = code == VP8_STATUS_NOT_ENOUGH_DATA || code == VP8_STATUS_SUSPENDED;
    return gw_fail(cut ? GW_E_TRUNCATED : GW_E_SYNTAX, in->where,
                   "is a WebP that cannot be read: %s",
                   cut ? "the file ends within the picture" : "the picture's data are damaged");
}

static gw_status read_first(const gw_encoded *in, const WebPDemuxer *file, gw_raster *out) {
    int64_t width = WebPDemuxGetI(file, WEBP_FF_CANVAS_WIDTH);
    int64_t height = WebPDemuxGetI(file, WEBP_FF_CANVAS_HEIGHT);
    GW_TRY(gw_raster_check(in, width, height, 4)); /* lossless pictures are decoded to 4 bytes */
    WebPIterator frame;
    if (!WebPDemuxGetFrame(file, 1, &frame)) {
        return gw_fail(GW_E_SYNTAX, in->where, "is a WebP without a picture");
    }
    gw_status status = GW_OK;
    int whole = frame.x_offset == 0 && frame.y_offset == 0 && frame.width == width &&
                frame.height == height;
    *out = (gw_raster){.width = (int32_t)width,
                       .height = (int32_t)height,
                       .channels = frame.has_alpha || !whole ? 4 : 3,
                       .orientation = exif_of(file)};
    if (frame.x_offset < 0 || frame.y_offset < 0 || frame.width > width - frame.x_offset ||
        frame.height > height - frame.y_offset) {
        status = gw_fail(GW_E_SYNTAX, in->where, "is a WebP whose frame is outside its canvas");
    }
    status = status == GW_OK ? gw_raster_alloc(in, out) : status;
    if (status == GW_OK && !whole) {
        memset(out->pixels, 0, (size_t)width * (size_t)height * 4);
    }
    status = status == GW_OK ? read_frame(in, &frame, out) : status;
    WebPDemuxReleaseIterator(&frame);
    return status;
}

gw_status gw_webp_read(const gw_encoded *in, gw_raster *out) {
    WebPData data = {in->data, in->n};
    WebPDemuxState state;
    WebPDemuxer *file = WebPDemuxPartial(&data, &state);
    if (file == NULL || state != WEBP_DEMUX_DONE) {
        int cut = state == WEBP_DEMUX_PARSING_HEADER || state == WEBP_DEMUX_PARSED_HEADER;
        WebPDemuxDelete(file);
        return gw_fail(cut ? GW_E_TRUNCATED : GW_E_SYNTAX, in->where,
                       "is a WebP that cannot be read: %s",
                       cut ? "the file ends within it" : "its chunks are damaged");
    }
    gw_raster made = {0};
    gw_status status = read_first(in, file, &made);
    WebPDemuxDelete(file);
    if (status == GW_OK) {
        *out = made;
    } else {
        free(made.pixels);
    }
    return status;
}

#endif
