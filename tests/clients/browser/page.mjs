// A page's gRPC-web with connect, in a browser: an eval that is cancelled, one from submission to score, and mistakes.
//
// The page is of another origin than the server. The test that serves it says what to do, and is told what was seen.

import { createFileRegistry, fromBinary } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createGrpcWebTransport } from "@connectrpc/connect-web";

const NO_JOB = "job_0000000000000000000000";
const READ = ["x-request-id", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];

// Tells the test of a step, and goes on when it answers.
async function tell(step, value) {
  const text = JSON.stringify({ step, value }, (_, one) => (typeof one === "bigint" ? Number(one) : one));
  const answer = await fetch("/tell", { method: "POST", body: text });
  return answer.json();
}

// Of headers, those that are for callers.
const read = (headers) => Object.fromEntries(READ.map((name) => [name, headers.get(name)]));

// A message of plain fields as REST would write it.
function plain({ $typeName, $unknown, ...fields }) {
  const name = (field) => field.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
  return Object.fromEntries(Object.entries(fields).map(([field, value]) => [name(field), value]));
}

// The error with which a call ends, with its details.
async function mistake(call, registry) {
  const error = await call.then(
    () => Promise.reject(new Error("a mistake was answered")),
    (error) => ConnectError.from(error),
  );
  const detail = (name) => error.findDetails(registry.getMessage(`google.rpc.${name}`))[0];
  return {
    // NotFound -> NOT_FOUND
    status: Code[error.code].replace(/(?<=.)(?=[A-Z])/g, "_").toUpperCase(),
    message: error.rawMessage,
    code: detail("ErrorInfo")?.reason.toLowerCase(),
    request_id: detail("RequestInfo")?.requestId,
    fields: detail("BadRequest")?.fieldViolations.map((fault) => ({
      field: fault.field,
      reason: fault.reason.toLowerCase(),
      message: fault.description,
    })),
    headers: read(error.metadata),
  };
}

// Watches a job until it has ended. What is done about a status is done before the next message is read.
async function watched(jobs, jobId, options, about = {}) {
  const seen = { statuses: [] };
  const onHeader = (headers) => (seen.headers = read(headers));
  const onTrailer = (trailers) => (seen.status = trailers.get("grpc-status"));
  for await (const { job } of jobs.watchJob({ jobId }, { ...options, onHeader, onTrailer })) {
    // Without a job it is a heartbeat.
    if (!job || job.status === seen.statuses.at(-1)) continue;
    seen.statuses.push(job.status);
    await about[job.status]?.(job);
  }
  return seen;
}

// What somebody had most often before comes first.
function byHabit({ itemId, input }) {
  const count = (dish) => input.past.filter((one) => one === dish).length;
  const ids = [...input.options].sort((one, other) => count(other) - count(one));
  return { itemId, prediction: { value: { case: "ranking", value: { ids } } } };
}

const tasks = {
  async all({ me, suites, evals, jobs }, told, registry) {
    const key = { headers: { Authorization: `Bearer ${told.key}` }, timeoutMs: 25_000 };

    // All that a page may send.
    const headers = { Authorization: `Bearer ${told.session}`, "X-Org-Id": told.org, "X-Request-Id": "of-the-page" };
    headers.traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let given;
    const signedIn = await me.getMe({}, { ...key, headers, onHeader: (headers) => (given = read(headers)) });
    await tell("signed in", { principal: signedIn.me.principal, org_id: signedIn.me.orgId, headers: given });

    const { items } = await suites.listSuiteItems({ suiteId: told.suite, limit: 1000n }, key);
    const submission = { suiteId: told.suite, label: "page", predictions: items.map(byHabit) };
    // The test lets no job end until it is told of the second: a stream that came in one piece would come never.
    const first = (await evals.createEval(submission, key)).job;
    const cancel = async ({ id }) => tell("cancelled", (await jobs.cancelJob({ jobId: id }, key)).job.status);
    await tell("watched", { id: first.id, ...(await watched(jobs, first.id, key, { running: cancel })) });

    const second = (await evals.createEval(submission, key)).job;
    const seen = await watched(jobs, second.id, key, { running: () => tell("running", second.id) });
    const { job } = await jobs.getJob({ jobId: second.id }, key);
    await tell("scored", { ...seen, job: { id: job.id, status: job.status, label: job.label }, result: plain(job.result) });

    await tell("mistakes", {
      field: await mistake(evals.createEval({ suiteId: "", label: "x".repeat(1000) }, key), registry),
      state: await mistake(jobs.cancelJob({ jobId: first.id }, key), registry),
      stream: await mistake(watched(jobs, NO_JOB, key), registry),
      credential: await mistake(me.getMe({}, { headers: { Authorization: "Bearer nobody" } }), registry),
    });
  },

  // What a page can do and read at all.
  async probe({ evals }, told) {
    const headers = { Authorization: `Bearer ${told.key}` };
    const predictions = [{ itemId: "person-00/day-0", prediction: { value: { case: "label", value: "ramen" } } }];
    const outcome = (call, say) => call.then(say, (error) => error.name);
    const health = (options) => fetch(`${told.api}/health`, options);
    await tell("probed", {
      created: await evals.createEval({ suiteId: told.suite, predictions }, { headers }).then(
        ({ job }) => job.status,
        (error) => Code[ConnectError.from(error).code],
      ),
      rest: await outcome(fetch(`${told.api}/v1/me`, { headers }), ({ status }) => status),
      unasked: await outcome(health({}), ({ status }) => status),
      // The server is there for this page, too; only the answer cannot be read.
      opaque: await outcome(health({ mode: "no-cors" }), ({ type, status }) => `${type} ${status}`),
    });
  },
};

try {
  const told = await tell("ready", navigator.userAgent);
  const bytes = await (await fetch("/descriptors")).arrayBuffer();
  const registry = createFileRegistry(fromBinary(FileDescriptorSetSchema, new Uint8Array(bytes)));
  const transport = createGrpcWebTransport({ baseUrl: told.api });
  const client = (name) => createClient(registry.getService(`assay.v1.${name}Service`), transport);
  const clients = { me: client("Me"), suites: client("Suite"), evals: client("Eval"), jobs: client("Job") };
  await tasks[told.task](clients, told, registry);
} catch (error) {
  await tell("trouble", `${error}\n${error.stack}`);
}
