// A page that calls the API with gRPC-web and connect: an eval that is cancelled, one from submission to score, and calls
// that fail.
//
// The page has another origin than the API. The test that serves the page sends it a task, and receives its reports.

import { createFileRegistry, fromBinary } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createGrpcWebTransport } from "@connectrpc/connect-web";

const NO_JOB = "job_0000000000000000000000";
const READ = ["x-request-id", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];

// Reports a step to the test, and returns the test's response.
async function report(step, value) {
  const text = JSON.stringify({ step, value }, (_, one) => (typeof one === "bigint" ? Number(one) : one));
  const response = await fetch("/tell", { method: "POST", body: text });
  return response.json();
}

// Returns the headers that are meant for callers.
const read = (headers) => Object.fromEntries(READ.map((name) => [name, headers.get(name)]));

// Converts a message to REST's JSON.
function plain(value) {
  if (Array.isArray(value)) return value.map(plain);
  if (!value?.$typeName) return value;
  const { $typeName, $unknown, ...fields } = value;
  const name = (field) => field.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
  return Object.fromEntries(Object.entries(fields).map(([field, one]) => [name(field), plain(one)]));
}

// Returns the error from a call that is expected to fail, with its details.
async function mistake(call, registry) {
  const error = await call.then(
    () => Promise.reject(new Error("an invalid call succeeded")),
    (error) => ConnectError.from(error),
  );
  const detail = (name) => error.findDetails(registry.getMessage(`google.rpc.${name}`))[0];
  return {
    // NotFound -> NOT_FOUND
    status: Code[error.code].replace(/(?<=.)(?=[A-Z])/g, "_").toUpperCase(),
    message: error.rawMessage,
    code: detail("ErrorInfo")?.reason.toLowerCase(),
    request_id: detail("RequestInfo")?.requestId,
    fields: detail("BadRequest")?.fieldViolations.map((violation) => ({
      field: violation.field,
      reason: violation.reason.toLowerCase(),
      message: violation.description,
    })),
    headers: read(error.metadata),
  };
}

// Watches a job until it has finished. A status's handler runs before the next message is read.
async function watched(jobs, jobId, options, handlers = {}) {
  const seen = { statuses: [] };
  const onHeader = (headers) => (seen.headers = read(headers));
  const onTrailer = (trailers) => (seen.status = trailers.get("grpc-status"));
  for await (const { job } of jobs.watchJob({ jobId }, { ...options, onHeader, onTrailer })) {
    // A message without a job is a heartbeat.
    if (!job || job.status === seen.statuses.at(-1)) continue;
    seen.statuses.push(job.status);
    await handlers[job.status]?.(job);
  }
  return seen;
}

// Ranks the options of an item by how often the person had them before.
function byHabit({ itemId, input }) {
  const count = (dish) => input.past.filter((one) => one === dish).length;
  const ids = [...input.options].sort((one, other) => count(other) - count(one));
  return { itemId, prediction: { value: { case: "ranking", value: { ids } } } };
}

const tasks = {
  async all({ me, suites, evals, jobs }, task, registry) {
    const key = { headers: { Authorization: `Bearer ${task.key}` }, timeoutMs: 25_000 };

    // All headers that a page can send.
    const headers = { Authorization: `Bearer ${task.session}`, "X-Org-Id": task.org, "X-Request-Id": "of-the-page" };
    headers.traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let given;
    const signedIn = await me.getMe({}, { ...key, headers, onHeader: (headers) => (given = read(headers)) });
    await report("signed in", { principal: signedIn.me.principal, org_id: signedIn.me.orgId, headers: given });

    const { items } = await suites.listSuiteItems({ suiteId: task.suite, limit: 1000n }, key);
    const submission = { suiteId: task.suite, label: "page", predictions: items.map(byHabit) };
    // The test lets no job finish until the second one is reported. A stream that arrives only as a whole would never arrive.
    const first = (await evals.createEval(submission, key)).job;
    const cancel = async ({ id }) => report("cancelled", (await jobs.cancelJob({ jobId: id }, key)).job.status);
    await report("watched", { id: first.id, ...(await watched(jobs, first.id, key, { running: cancel })) });

    const second = (await evals.createEval(submission, key)).job;
    const seen = await watched(jobs, second.id, key, { running: () => report("running", second.id) });
    const { job } = await jobs.getJob({ jobId: second.id }, key);
    await report("scored", { ...seen, job: { id: job.id, status: job.status, label: job.label }, result: plain(job.result) });

    await report("mistakes", {
      field: await mistake(evals.createEval({ suiteId: "", label: "x".repeat(1000) }, key), registry),
      state: await mistake(jobs.cancelJob({ jobId: first.id }, key), registry),
      stream: await mistake(watched(jobs, NO_JOB, key), registry),
      credential: await mistake(me.getMe({}, { headers: { Authorization: "Bearer nobody" } }), registry),
    });
  },

  // Reports which calls a page can make, and which responses it can read.
  async probe({ evals }, task) {
    const headers = { Authorization: `Bearer ${task.key}` };
    const predictions = [{ itemId: "person-00/day-0", prediction: { value: { case: "label", value: "ramen" } } }];
    const outcome = (call, say) => call.then(say, (error) => error.name);
    const health = (options) => fetch(`${task.api}/health`, options);
    await report("probed", {
      created: await evals.createEval({ suiteId: task.suite, predictions }, { headers }).then(
        ({ job }) => job.status,
        (error) => Code[ConnectError.from(error).code],
      ),
      rest: await outcome(fetch(`${task.api}/v1/me`, { headers }), ({ status }) => status),
      unasked: await outcome(health({}), ({ status }) => status),
      // The server responds to this page, too; the page cannot read the response.
      opaque: await outcome(health({ mode: "no-cors" }), ({ type, status }) => `${type} ${status}`),
    });
  },
};

try {
  const task = await report("ready", navigator.userAgent);
  const bytes = await (await fetch("/descriptors")).arrayBuffer();
  const registry = createFileRegistry(fromBinary(FileDescriptorSetSchema, new Uint8Array(bytes)));
  const transport = createGrpcWebTransport({ baseUrl: task.api });
  const client = (name) => createClient(registry.getService(`assay.v1.${name}Service`), transport);
  const clients = { me: client("Me"), suites: client("Suite"), evals: client("Eval"), jobs: client("Job") };
  await tasks[task.task](clients, task, registry);
} catch (error) {
  await report("trouble", `${error}\n${error.stack}`);
}
