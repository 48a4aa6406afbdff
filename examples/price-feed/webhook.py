#!/usr/bin/env python3
# webhook.py PORT: prints each price that is posted. An older token of a product is refused: a newer worker has written already.
import http.server, json, sys

tokens = {}


class Webhook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        change = json.loads(self.rfile.read(int(self.headers["content-length"])))
        is_newest = change["token"] >= tokens.get(change["sku"], 0)
        if is_newest:
            tokens[change["sku"]] = change["token"]
            print(change["sku"], "deleted" if change["price"] is None else change["price"], flush=True)
        self.send_response(200 if is_newest else 409)
        self.end_headers()

    def log_message(self, *args):
        pass


http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Webhook).serve_forever()
