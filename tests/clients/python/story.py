"""A grpcio client that submits, watches, reads and cancels jobs, and makes one invalid request. Prints one JSON object."""

import json
import tempfile

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status

import common
from grpc_client import generate


def main():
    with tempfile.TemporaryDirectory() as folder:
        stub = generate(folder)
        evals, evals_grpc = stub("evals_pb2"), stub("evals_pb2_grpc")
        jobs, jobs_grpc = stub("jobs_pb2"), stub("jobs_pb2_grpc")
    channel = grpc.insecure_channel(common.GRPC, options=[("grpc.enable_http_proxy", 0)])
    key = [("authorization", f"Bearer {common.API_KEY}")]
    eval_service, job_service = evals_grpc.EvalServiceStub(channel), jobs_grpc.JobServiceStub(channel)

    def submit(suite_id, *item_ids):
        prediction = lambda item_id: evals.Prediction(item_id=item_id, prediction=evals.PredictionValue(ranking=evals.Ranking(ids=["ramen"])))
        request = evals.CreateEvalRequest(suite_id=suite_id, predictions=[prediction(item_id) for item_id in item_ids])
        return eval_service.CreateEval(request, metadata=key, timeout=common.WAIT_TIMEOUT).job.id

    def watch(job_id):
        """Yields each job in the stream. Heartbeats have no job."""
        stream = job_service.WatchJob(jobs.WatchJobRequest(job_id=job_id), metadata=key, timeout=common.WAIT_TIMEOUT)
        return (change.job for change in stream if change.HasField("job"))

    scored = list(watch(submit(common.SUITE, common.ITEM)))
    result = job_service.GetJob(jobs.GetJobRequest(job_id=scored[-1].id), metadata=key, timeout=common.WAIT_TIMEOUT).job.result

    cancelled = []
    for job in watch(submit(common.HELD_SUITE, common.ITEM)):
        cancelled.append(job.status)
        if job.status == "running":
            job_service.CancelJob(jobs.CancelJobRequest(job_id=job.id), metadata=key, timeout=common.WAIT_TIMEOUT)

    try:
        submit("suite:none", common.ITEM, common.ITEM)
        raise SystemExit("an invalid request was accepted")
    except grpc.RpcError as error:
        info, request = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
        for detail in rpc_status.from_call(error).details:
            detail.Unpack(info) or detail.Unpack(request)
        mistake = {
            "status": error.code().name,
            "reason": info.reason,
            "fields": [[violation.field, violation.reason] for violation in request.field_violations],
        }
    story = {"watched": [job.status for job in scored], "value": result.value, "cancelled": cancelled, "mistake": mistake}
    print(json.dumps(story))


if __name__ == "__main__":
    main()
