"""The API's peer: FastAPI and asyncpg with the statements in `tests/benches/service/floor.rs`. `cargo bench-service` runs it."""

import contextlib
import json
import os
import uuid

import asyncpg
import fastapi


async def prepare(connection):
    await connection.set_type_codec("jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")


@contextlib.asynccontextmanager
async def lifespan(app):
    async with asyncpg.create_pool(os.environ["BENCH_DATABASE_URL"], min_size=8, max_size=8, init=prepare) as app.state.pool:
        yield


app = fastapi.FastAPI(lifespan=lifespan)


@app.get("/constant")
async def constant():
    return {"status": "succeeded"}


@app.get("/submissions/{id}")
async def select(id: str):
    sql = "select id, org_id, status, payload, created_at::text from submissions where id = $1"
    return dict(await app.state.pool.fetchrow(sql, id))


@app.post("/submissions", status_code=202)
async def insert(request: fastapi.Request):
    sql = "insert into submissions (id, org_id, status, payload) values ($1, 'org', 'queued', $2) returning id"
    return {"id": await app.state.pool.fetchval(sql, str(uuid.uuid4()), await request.json()), "status": "queued"}
