"""A constant load on the API, as clients with and without kept connections make it, and evaluations that are followed to their
end. It records every failure and repeats nothing."""

import http.client
import json
import select
import threading
import time

# Requests per second: half on connections of their own, half on kept connections.
RATE = 40
EVALS = 1
# A request that waits longer has failed for its caller.
TIMEOUT = 15


class Load:
    def __init__(self, host, port, key, suite, predictions):
        self.address, self.key, self.suite, self.predictions = (host, port), key, suite, predictions
        self.lock = threading.Lock()
        self.failures, self.jobs, self.slowest = [], [], 0.0
        self.requests = self.reconnected = 0
        self.stopping = threading.Event()
        self.followers = []
        self.began = time.monotonic()
        pace = RATE // 2
        self.threads = [
            threading.Thread(target=self._send, args=(kept, number / pace), daemon=True)
            for kept in [False, True]
            for number in range(pace)
        ]
        self.threads.append(threading.Thread(target=self._submit, daemon=True))
        for thread in self.threads:
            thread.start()

    def mark(self):
        """Returns the request count until now."""
        with self.lock:
            return self.requests

    def check(self):
        """Fails if a request has failed until now."""
        with self.lock:
            assert not self.failures, f"{len(self.failures)} of {self.requests} requests failed: {self.failures[:20]}"

    def fails_within(self, seconds):
        """Whether a request fails until now or within `seconds`."""
        end = time.monotonic() + seconds
        while not self.failures and time.monotonic() < end:
            time.sleep(0.1)
        return bool(self.failures)

    def stop(self):
        """Ends the load, waits for the evaluations, and returns them."""
        self.stopping.set()
        for thread in self.threads + self.followers:
            thread.join()
        return self.jobs

    def _ticks(self, delay, pause):
        due = time.monotonic() + delay
        while not self.stopping.wait(max(0.0, due - time.monotonic())):
            yield
            due += pause

    def _send(self, kept, delay):
        connection = None
        paths = ["/v1/me", "/health", f"/v1/suites/{self.suite}", f"/v1/suites/{self.suite}/items?limit=5"]
        for number, _ in enumerate(self._ticks(delay, 1.0)):
            if connection and connection.sock and select.select([connection.sock], [], [], 0)[0]:
                # The server has closed the idle connection. Every client looks before it sends.
                connection.close()
                connection = None
                with self.lock:
                    self.reconnected += 1
            connection = connection or self._connect()
            self._request(connection, "GET", paths[number % len(paths)], kind="kept connection" if kept else "new connection")
            if not kept:
                connection.close()
                connection = None
        if connection:
            connection.close()

    def _connect(self, timeout=TIMEOUT):
        return http.client.HTTPConnection(*self.address, timeout=timeout)

    def _request(self, connection, method, path, body=None, kind="connection of an evaluation"):
        """Returns a successful response's JSON, otherwise None."""
        began = time.monotonic()
        failure = value = None
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            content = response.read()
            if response.status >= 300:
                failure = f"{response.status} {content[:300]!r}"
            else:
                value = json.loads(content)
        except (OSError, http.client.HTTPException) as error:
            failure = repr(error)
            connection.close()
        took = time.monotonic() - began
        with self.lock:
            self.requests += 1
            self.slowest = max(self.slowest, took)
            if failure:
                self.failures.append(f"after {began - self.began:.1f} s, in {took:.2f} s, {kind}: {method} {path}: {failure}")
        return value

    def _submit(self):
        for _ in self._ticks(0, 1.0 / EVALS):
            follower = threading.Thread(target=self._evaluate, daemon=True)
            follower.start()
            self.followers.append(follower)

    def _evaluate(self):
        # A request that waits for a job takes up to 30 s.
        connection = self._connect(30 + TIMEOUT)
        job = self._request(connection, "POST", "/v1/evals", {"suite_id": self.suite, "predictions": self.predictions})
        end = time.monotonic() + 120
        while job and job["status"] in ("queued", "running"):
            if time.monotonic() > end:
                with self.lock:
                    self.failures.append(f"job {job['id']} is still {job['status']}")
                break
            job = self._request(connection, "GET", f"/v1/jobs/{job['id']}?wait=30")
        connection.close()
        if job:
            with self.lock:
                self.jobs.append(job)
