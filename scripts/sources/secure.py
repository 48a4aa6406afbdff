"""TLS in front of a source, with certificates that are replaced."""
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

from sources.real import LOCK, SETTINGS, end, free_port, spawn, until

# The certificates: their authority, their name, and their days.
CERTIFICATES = {"good": (1, "localhost", 9), "renewed": (1, "localhost", 90), "other": (2, "localhost", 9), "expired": (1, "localhost", -1),
                "wrong_name": (1, "elsewhere.example", 9)}


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


def pki():
    """A folder with the certificates, their keys, and the certificates of two authorities."""
    folder = SETTINGS.work / "pki"
    with LOCK:
        if not folder.exists():
            (made := SETTINGS.work / "pki.partial").mkdir()
            for authority in (1, 2):
                openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", made / f"ca-{authority}.key", "-out", made / f"ca-{authority}.crt",
                        "-days", 9, "-subj", f"/CN=authority-{authority}", "-addext", "basicConstraints=critical,CA:TRUE")
            for name, (authority, host, days) in CERTIFICATES.items():
                (made / "extensions").write_text(f"subjectAltName={'IP:127.0.0.1' if host == 'localhost' else f'DNS:{host}'}\n")
                openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", made / f"{name}.key", "-out", made / "csr", "-subj", f"/CN={host}")
                openssl("x509", "-req", "-in", made / "csr", "-CA", made / f"ca-{authority}.crt", "-CAkey", made / f"ca-{authority}.key", "-CAcreateserial",
                        "-days", days, "-out", made / f"{name}.crt", "-extfile", made / "extensions")
            made.rename(folder)
    return folder


class Secure:
    """The file of authorities that deltaq reads. `serve` chooses the certificate of the server, or `plain` for none."""

    def __init__(self, folder):
        self.pki, self.folder, self.ca_file = pki(), folder, folder / "ca.crt"
        self.trust(1)

    def trust(self, authority):
        partial = self.folder / "ca.partial"
        shutil.copy(self.pki / f"ca-{authority}.crt", partial)
        partial.rename(self.ca_file)

    def close(self):
        pass


class Front(Secure):
    """nginx, which speaks TLS and HTTP/2, before an HTTP server."""

    def __init__(self, folder, target):
        (nginx := folder / "tls").mkdir()
        super().__init__(nginx)
        self.target, self.port, self.process = target, free_port(), None
        self.serve("good")

    def serve(self, certificate):
        temporary = " ".join(f"{name}_temp_path {self.folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        tls = "" if certificate == "plain" else "ssl http2"
        files = f"ssl_certificate {self.pki}/{certificate}.crt; ssl_certificate_key {self.pki}/{certificate}.key;" if tls else ""
        (self.folder / "nginx.conf").write_text(f"""{'user root;' if os.getuid() == 0 else ''} daemon off; worker_processes 1; worker_shutdown_timeout 1s;
            error_log {self.folder}/error.log; pid {self.folder}/nginx.pid; events {{ worker_connections 64; }}
            http {{ access_log off; {temporary} server {{ listen 127.0.0.1:{self.port} {tls}; {files}
            location / {{ proxy_pass http://127.0.0.1:{self.target}; proxy_http_version 1.1; proxy_buffering off; proxy_read_timeout 300s; }} }} }}""")
        if self.process:
            self.process.send_signal(signal.SIGHUP)
            # Connections to the former workers have ended.
            time.sleep(1.5)
            return
        program = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin")
        self.process = spawn([program, "-e", self.folder / "error.log", "-p", self.folder, "-c", self.folder / "nginx.conf"], self.folder / "nginx.log")
        until("nginx is ready", self.is_ready, 20)

    def is_ready(self):
        with socket.socket() as connection:
            return connection.connect_ex(("127.0.0.1", self.port)) == 0

    def close(self):
        end(self.process, signal.SIGTERM)


class OfPostgres(Secure):
    """PostgreSQL's own TLS."""

    def __init__(self, folder, source):
        super().__init__(folder)
        self.source = source
        self.serve("good")

    def serve(self, certificate):
        data = self.source.data / "data"
        if certificate != "plain":
            for kind in ("key", "crt"):
                # PostgreSQL refuses a key that others can read.
                shutil.copy(self.pki / f"{certificate}.{kind}", partial := data / "partial")
                pathlib.Path(partial).chmod(0o600)
                if self.source.user:
                    shutil.chown(partial, "postgres", "postgres")
                partial.rename(data / f"server.{kind}")
        self.source.run_sql(f"ALTER SYSTEM SET ssl = {'off' if certificate == 'plain' else 'on'}")
        self.source.run_sql("SELECT pg_reload_conf()")
        time.sleep(0.5)
