# tests/hub.py - a hub of models on this machine: the routes that `godwit pull` asks, over a folder,
# with faults on request. Wrong answers are made here; nothing outside is asked.
import hashlib
import http.server
import json
import pathlib
import socket
import threading
import time

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def git_digest(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Hub:
    """files: path -> bytes of user/repo. fault(handler, path, start) -> True when it has answered."""

    def __init__(self, files, lfs=(".gguf", ".safetensors", ".bin")):
        self.files, self.lfs = dict(files), lfs
        self.fault = self.list_fault = None
        self.asked, self.tokens = [], []
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *words):
                pass

            def reply(self, code, body=b"", length=None, **headers):
                self.send_response(code)
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.send_header("Content-Length", str(len(body) if length is None else length))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def cut(self):
                self.close_connection = True
                self.connection.close()

            def do_HEAD(self):
                self.do_GET()

            def do_GET(self):
                try:
                    hub.answer(self)
                except (BrokenPipeError, ConnectionResetError):
                    pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def listing(self):
        rows = []
        for path, data in self.files.items():
            row = {"rfilename": path, "size": len(data), "blobId": git_digest(data)}
            if path.endswith(self.lfs):
                row["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
            rows.append(row)
        return {"id": "user/repo", "sha": COMMIT, "siblings": rows}

    def answer(self, handler):
        path = handler.path.split("?")[0]
        self.tokens.append(handler.headers.get("Authorization"))
        if path.startswith("/api/models/user/repo"):
            if self.list_fault and self.list_fault(handler):
                return None
            return handler.reply(200, json.dumps(self.listing()).encode(), Content_Type="application/json")
        front = f"/user/repo/resolve/{COMMIT}/"
        if "/resolve/" in path and not path.startswith(front):
            path = front + path.split("/resolve/", 1)[1].split("/", 1)[1]
        name = path[len(front):]
        if not path.startswith(front) or name not in self.files:
            return handler.reply(404, b'{"error": "not found"}')
        data, span = self.files[name], handler.headers.get("Range")
        start, end = 0, len(data)
        if span:
            first, last = span.split("=")[1].split("-")
            start, end = int(first), min(int(last) + 1, len(data)) if last else len(data)
        self.asked.append((name, start, end))
        if self.fault and self.fault(handler, name, start):
            return None
        digest = hashlib.sha256(data).hexdigest() if name.endswith(self.lfs) else git_digest(data)
        more = {"ETag": f'"{digest}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        if start >= len(data) and span and data:
            return handler.reply(416, b"", Content_Range=f"bytes */{len(data)}")
        if span:
            more["Content_Range"] = f"bytes {start}-{end - 1}/{len(data)}"
        return handler.reply(206 if span else 200, data[start:end], **more)
