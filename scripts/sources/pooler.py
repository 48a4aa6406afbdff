"""PostgreSQL behind PgBouncer, whose other settings are the defaults."""
import os
import shutil
import socket
import subprocess

from sources.real import KINDS, Postgres, end, free_port, spawn, until


class PgBouncer(Postgres):
    """PgBouncer in transaction mode with one connection."""

    def start(self):
        super().start()
        self.pooler_port, self.pooler = free_port(), None
        self.pool()
        self.wire.target = self.pooler_port

    def pool(self):
        settings = {"listen_addr": "127.0.0.1", "listen_port": self.pooler_port, "unix_socket_dir": "", "auth_type": "any", "pool_mode": "transaction",
                    "default_pool_size": 1, "admin_users": "admin"}
        lines = ["[databases]", f"* = host=127.0.0.1 port={self.port} user=reader", "[pgbouncer]", *(f"{name} = {value}" for name, value in settings.items())]
        (self.folder / "pgbouncer.ini").write_text("\n".join(lines) + "\n")
        program = shutil.which("pgbouncer", path=os.environ["PATH"] + ":/usr/sbin")
        self.pooler = spawn([*self.user, program, self.folder / "pgbouncer.ini"], self.folder / "pgbouncer.log", cwd="/")
        until("PgBouncer is ready", self.is_pooling, 20)

    def is_pooling(self):
        with socket.socket() as connection:
            return connection.connect_ex(("127.0.0.1", self.pooler_port)) == 0

    def admin(self, command):
        arguments = ["psql", "-X", "-q", "-h", "127.0.0.1", "-p", str(self.pooler_port), "-U", "admin", "-d", "pgbouncer", "-c", command]
        subprocess.run(arguments, check=True, capture_output=True)

    def close(self):
        super().close()
        end(self.pooler)


class PgBouncerSince(PgBouncer):
    SINCE, QUERY = ("--since", "version", "--relist", "2s"), "SELECT * FROM shop"


KINDS |= {"pgbouncer": PgBouncer, "pgbouncer-since": PgBouncerSince}
