"""The worker's peer: Celery with the statements in `tests/benches/service/floor.rs`. `cargo bench-service` runs it.

`python service_worker.py` enqueues the rows with the status `queued`.
"""

import os

import celery
import psycopg

app = celery.Celery("service_worker", broker=os.environ["BENCH_BROKER_URL"])
app.conf.task_ignore_result = True
app.conf.broker_connection_retry_on_startup = True
connection = None


@celery.signals.worker_process_init.connect
def connect(**_):
    global connection
    connection = psycopg.connect(os.environ["BENCH_DATABASE_URL"], autocommit=True)


@app.task(name="score")
def score(id):
    connection.execute("update submissions set status = 'running' where id = %s and status = 'queued'", [id])
    connection.execute("update submissions set status = 'succeeded', finished_at = now() where id = %s", [id])


if __name__ == "__main__":
    connect()
    for (id,) in connection.execute("select id from submissions where status = 'queued'"):
        score.delay(id)
