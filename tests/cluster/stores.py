"""PostgreSQL and Redis as servers outside the cluster, reachable by its pods."""

import pathlib
import shutil
import subprocess

import node
import packages

DATABASE, REDIS = "database.test", "redis.test"
# PostgreSQL refuses to run as root. This user has no rights.
NOBODY = "65534"


class Stores:
    def __init__(self, processes, redis_password):
        self.folder = node.FOLDER / "stores"
        self.folder.mkdir()
        self.programs = packages.postgres_programs(pathlib.Path("/usr"))
        self._start_postgres(processes)
        self._start_redis(processes, redis_password)
        processes.ready("postgres", lambda: self.psql("select 1", check=False).returncode == 0)
        processes.ready("redis", lambda: b"ready to accept" in (processes.logs / "redis.log").read_bytes().lower())

    def _as_nobody(self, *command):
        return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *command]

    def _start_postgres(self, processes):
        data = self.folder / "postgres"
        data.mkdir()
        shutil.chown(data, int(NOBODY), int(NOBODY))
        initialize = [
            self.programs / "initdb",
            "--username=postgres",
            "--auth-local=trust",
            "--auth-host=scram-sha-256",
            "--no-sync",
            "-D",
            data,
        ]
        made = subprocess.run(self._as_nobody(*map(str, initialize)), capture_output=True, text=True, check=False, cwd="/")
        assert made.returncode == 0, made.stderr
        with (data / "pg_hba.conf").open("a", encoding="utf-8") as file:
            file.write("host all all 0.0.0.0/0 scram-sha-256\n")
        settings = {
            "listen_addresses": node.OUTSIDE,
            "unix_socket_directories": data,
            # An upgrade's builds, with their pools, and the previous build's drained pods.
            "max_connections": 300,
            "fsync": "off",
            "log_line_prefix": "%m %u ",
        }
        words = [word for name, value in settings.items() for word in ["-c", f"{name}={value}"]]
        processes.start("postgres", *self._as_nobody(self.programs / "postgres", "-D", data, *words), cwd="/")

    def _start_redis(self, processes, password):
        processes.start(
            "redis",
            *self._as_nobody("redis-server", "--bind", node.OUTSIDE, "--requirepass", password, "--save", "", "--appendonly", "no"),
            *["--maxmemory-policy", "noeviction", "--protected-mode", "no"],
            cwd="/",
        )

    def psql(self, statements, database="postgres", check=True, user="postgres"):
        """Runs statements, as the superuser or another role, and returns their rows without headers."""
        options = ["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1", f"--username={user}"]
        command = [self.programs / "psql", *options, f"--host={self.folder}/postgres", f"--dbname={database}"]
        made = subprocess.run([str(word) for word in command], input=statements, capture_output=True, text=True, check=False)
        assert made.returncode == 0 or not check, made.stderr
        return made
