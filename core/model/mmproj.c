/* core/model/mmproj.c - see mmproj.h. */
#include "core/model/mmproj.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/os.h"
#include "core/base/status.h"
#include "core/base/text.h"

gw_status gw_folder_mmproj(const char *path, char *out, size_t room) {
    const char *slash = gw_os_last_slash(path);
    int folder = gw_path_look(path) == GW_PATH_FOLDER;
    int bytes = folder ? (int)strlen(path) : slash != NULL ? (int)(slash - path) : 0;
    size_t count = 0;
    char where[PATH_MAX], found[PATH_MAX];
    snprintf(where, sizeof where, "%.*s", bytes, path);
    DIR *dir = opendir(bytes > 0 ? where : slash != NULL ? "/" : ".");
    for (struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        if (folder && strcmp(e->d_name, "config.json") == 0) {
            closedir(dir);
            out[0] = '\0';
            return GW_OK;
        }
        if (gw_text_ends(e->d_name, ".gguf") && strstr(e->d_name, "mmproj") != NULL) {
            int wrote = snprintf(found, sizeof found, "%s%s%s", where,
                                 bytes > 0 || slash != NULL ? "/" : "", e->d_name);
            count += wrote > 0 && (size_t)wrote < sizeof found;
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    if (count != 1 || strlen(found) >= room) {
        return gw_fail(GW_E_UNSUPPORTED, path,
                       count == 0
                           ? "no file whose name has 'mmproj' lies next to it, so it cannot "
                             "see; give one by --mmproj FILE"
                           : "several files whose names have 'mmproj' lie next to it; give one "
                             "by --mmproj FILE");
    }
    snprintf(out, room, "%s", found);
    return GW_OK;
}
