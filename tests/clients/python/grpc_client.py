"""A gRPC client with grpcio: an eval from submission to score, one call that fails, health checks and reflection.
Prints one JSON object. The stubs are generated from the .proto files at each run, as by any caller."""

import importlib
import importlib.resources
import json
import pathlib
import sys
import tempfile

import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from grpc_status import rpc_status
from grpc_tools import protoc

import common

# The fields that REST omits if they are absent; every other absent field is null there.
OMITTED = {
    "result", "error", "trace_url", "suite_version", "sealed", "n_clusters", "design_effect", "ceiling", "share_of_ceiling",
    "skill", "by_publisher"
}


def generate(folder):
    """Generates the stubs into a folder and returns a function that imports one."""
    sources = sorted(str(path) for path in pathlib.Path(common.PROTO).glob("assay/v1/*.proto"))
    well_known = importlib.resources.files("grpc_tools") / "_proto"
    flags = [f"-I{common.PROTO}", f"-I{well_known}", f"--python_out={folder}", f"--grpc_python_out={folder}"]
    if protoc.main(["protoc", *flags, *sources]) != 0:
        raise SystemExit("protoc rejects the .proto files")
    sys.path.insert(0, folder)
    return lambda name: importlib.import_module(f"assay.v1.{name}")


def plain(message):
    """Converts a message to REST's JSON. MessageToDict cannot be used: it writes 64-bit integers as strings and shortens
    timestamps."""
    if message.DESCRIPTOR.full_name == "google.protobuf.Timestamp":
        return message.ToDatetime().isoformat(timespec="microseconds") + "Z"
    fields = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            if field.name not in OMITTED:
                fields[field.name] = None
            continue
        value = getattr(message, field.name)
        if field.message_type and field.message_type.GetOptions().map_entry:
            value = dict(value)
        elif field.is_repeated:
            value = [plain(one) if field.message_type else one for one in value]
        elif field.message_type:
            value = plain(value)
        fields[field.name] = value
    return fields


def metadata(call):
    """Returns a call's metadata. That of an error can be initial or trailing."""
    return dict([*(call.initial_metadata() or ()), *(call.trailing_metadata() or ())])


def rejected(rpc, request, credentials=None):
    """Calls an rpc that is expected to fail, and returns its error."""
    try:
        rpc(request, metadata=credentials, timeout=common.WAIT_TIMEOUT)
    except grpc.RpcError as error:
        return error
    raise SystemExit(f"the request did not fail: {request}")


def details(error):
    """Returns the messages in an error's details, by name. from_call also checks that they match its code and message."""
    status = rpc_status.from_call(error)
    if status is None:
        raise SystemExit(f"an error without details: {error}")
    found = {}
    for kind in (error_details_pb2.ErrorInfo, error_details_pb2.RequestInfo):
        for any_message in status.details:
            message = kind()
            if any_message.Unpack(message):
                found[kind.DESCRIPTOR.name] = message
    return found


def main():
    with tempfile.TemporaryDirectory() as folder:
        stub = generate(folder)
        evals, evals_grpc = stub("evals_pb2"), stub("evals_pb2_grpc")
        jobs, jobs_grpc = stub("jobs_pb2"), stub("jobs_pb2_grpc")
        me, me_grpc = stub("me_pb2"), stub("me_pb2_grpc")

    channel = grpc.insecure_channel(common.GRPC, options=[("grpc.enable_http_proxy", 0)])
    key = [("authorization", f"Bearer {common.API_KEY}")]
    session = [("authorization", f"Bearer {common.SESSION}")]

    def prediction(line):
        value = line["prediction"]
        value = {"label": value} if isinstance(value, str) else {"ranking": evals.Ranking(ids=value)}
        return evals.Prediction(item_id=line["item_id"], prediction=evals.PredictionValue(**value))

    request = evals.CreateEvalRequest(
        suite_id=common.SUITE, label=common.LABEL, predictions=[prediction(line) for line in common.predictions()]
    )
    made = evals_grpc.EvalServiceStub(channel).CreateEval(request, metadata=key, timeout=common.WAIT_TIMEOUT).job
    job_service = jobs_grpc.JobServiceStub(channel)
    get = jobs.GetJobRequest(job_id=made.id)
    job = common.wait_until_finished(lambda: plain(job_service.GetJob(get, metadata=key, timeout=common.WAIT_TIMEOUT).job))

    mistake = rejected(job_service.GetJob, jobs.GetJobRequest(job_id=common.NO_JOB), key)
    found = details(mistake)
    me_service = me_grpc.MeServiceStub(channel)
    who, call = me_service.GetMe.with_call(me.GetMeRequest(), metadata=key, timeout=common.WAIT_TIMEOUT)
    headers = metadata(call)
    signed_in = me_service.GetMe(me.GetMeRequest(), metadata=session, timeout=common.WAIT_TIMEOUT)

    health = health_pb2_grpc.HealthStub(channel)
    serving = {
        name: health_pb2.HealthCheckResponse.ServingStatus.Name(
            health.Check(health_pb2.HealthCheckRequest(service=name), timeout=common.WAIT_TIMEOUT).status
        )
        for name in ("", "assay.v1.JobService")
    }
    nobody = rejected(me_service.GetMe, me.GetMeRequest())
    unknown = {}
    for path in ("/assay.v1.JobService/Nothing", "/assay.v1.Nothing/Get"):
        rpc = channel.unary_unary(path, request_serializer=bytes, response_deserializer=bytes)
        unknown[path] = rejected(rpc, b"", key).code().name

    reflected = ProtoReflectionDescriptorDatabase(channel)
    service = DescriptorPool(reflected).FindServiceByName("assay.v1.JobService")
    print(
        json.dumps(
            {
                "job": job,
                "error": {
                    "code": found["ErrorInfo"].reason.lower(),
                    "status": mistake.code().name,
                    "message": mistake.details(),
                    "request_id_header_matches": found["RequestInfo"].request_id == metadata(mistake)["x-request-id"],
                },
                "principals": {"key": who.me.principal, "session": signed_in.me.principal},
                "headers": {name: headers[name] for name in ("x-request-id", "x-ratelimit-limit")},
                "health": serving,
                "services": sorted(reflected.get_services()),
                "reflected_methods": [method.name for method in service.methods],
                "without_credential": {
                    "status": nobody.code().name,
                    "reason": details(nobody)["ErrorInfo"].reason,
                    "headers": sorted(name for name in metadata(nobody) if name.startswith("x-")),
                },
                "unknown_methods": unknown,
            }
        )
    )


if __name__ == "__main__":
    main()
