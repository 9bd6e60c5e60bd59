"""A REST client with requests: an eval from submission to score, and one request that fails. Prints one JSON object."""

import json

import requests

import common


def session(token):
    made = requests.Session()
    # Ignores the proxy settings and this machine's .netrc, because the server is local.
    made.trust_env = False
    made.headers["Authorization"] = f"Bearer {token}"
    return made


def main():
    key = session(common.API_KEY)

    def get(path, client=key):
        response = client.get(f"{common.REST}{path}", timeout=common.WAIT_TIMEOUT)
        response.raise_for_status()
        return response

    body = {"suite_id": common.SUITE, "label": common.LABEL, "predictions": common.predictions()}
    made = key.post(f"{common.REST}/v1/evals", json=body, timeout=common.WAIT_TIMEOUT)
    if made.status_code != 202:
        raise SystemExit(f"{made.status_code} {made.text}")
    job = common.wait_until_finished(lambda: get(f"/v1/jobs/{made.json()['id']}").json())

    mistake = key.get(f"{common.REST}/v1/jobs/{common.NO_JOB}", timeout=common.WAIT_TIMEOUT)
    error = mistake.json()["error"]
    me = get("/v1/me")
    print(
        json.dumps(
            {
                "job": job,
                "error": {
                    "code": error["code"],
                    "status": mistake.status_code,
                    "message": error["message"],
                    "request_id_header_matches": error["request_id"] == mistake.headers["X-Request-Id"],
                },
                "principals": {
                    "key": me.json()["principal"],
                    "session": get("/v1/me", session(common.SESSION)).json()["principal"],
                },
                "headers": {
                    "x-request-id": me.headers["X-Request-Id"],
                    "x-ratelimit-limit": me.headers["X-RateLimit-Limit"],
                },
            }
        )
    )


main()
