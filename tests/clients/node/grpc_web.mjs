// A gRPC-web client with connect: an eval from submission to score, and one call that fails. Prints one JSON object.
//
// The client knows only the address. It gets the descriptors from the server by reflection and builds the services from
// them, so it needs no compiler for .proto files.

import { readFile } from "node:fs/promises";
import { setTimeout as pause } from "node:timers/promises";
import { create, createFileRegistry, fromBinary } from "@bufbuild/protobuf";
import { reflect } from "@bufbuild/protobuf/reflect";
import {
  FieldDescriptorProto_Label as Label,
  FieldDescriptorProto_Type as Type,
  FileDescriptorProtoSchema,
  FileDescriptorSetSchema,
} from "@bufbuild/protobuf/wkt";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createGrpcTransport, createGrpcWebTransport } from "@connectrpc/connect-node";

const LABEL = "clients";
const NO_JOB = "job_0000000000000000000000";
const FINAL_STATES = ["succeeded", "failed", "cancelled"];
const JOB_TIMEOUT_MS = 1000 * Number(process.env.ASSAY_TEST_WAIT_SECONDS ?? 180);
const POLL_INTERVAL_MS = 50;
// The fields that REST omits if they are absent; every other absent field is null there.
const OMITTED = ["result", "error", "trace_url", "suite_version", "sealed", "n_clusters", "design_effect", "ceiling", "share_of_ceiling", "skill", "by_publisher"];

const env = (name) => {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set`);
  return value;
};

// Returns the messages that are needed before there are any descriptors, with the fields that are read here.
function known() {
  const field = (name, number, type, more) => ({ name, number, type, label: Label.OPTIONAL, ...more });
  const message = (name, ...fields) => ({ name, field: fields });
  const oneof = { oneofIndex: 0 };
  const pkg = ".grpc.reflection.v1.";
  const reflection = create(FileDescriptorProtoSchema, {
    name: "reflection.proto",
    package: "grpc.reflection.v1",
    syntax: "proto3",
    messageType: [
      {
        ...message(
          "ServerReflectionRequest",
          field("file_by_filename", 3, Type.STRING, oneof),
          field("file_containing_symbol", 4, Type.STRING, oneof),
          field("list_services", 7, Type.STRING, oneof),
        ),
        oneofDecl: [{ name: "message_request" }],
      },
      {
        ...message(
          "ServerReflectionResponse",
          field("file_descriptor_response", 4, Type.MESSAGE, { ...oneof, typeName: `${pkg}FileDescriptorResponse` }),
          field("list_services_response", 6, Type.MESSAGE, { ...oneof, typeName: `${pkg}ListServiceResponse` }),
          field("error_response", 7, Type.MESSAGE, { ...oneof, typeName: `${pkg}ErrorResponse` }),
        ),
        oneofDecl: [{ name: "message_response" }],
      },
      message("FileDescriptorResponse", field("file_descriptor_proto", 1, Type.BYTES, { label: Label.REPEATED })),
      message("ListServiceResponse", field("service", 1, Type.MESSAGE, { label: Label.REPEATED, typeName: `${pkg}ServiceResponse` })),
      message("ServiceResponse", field("name", 1, Type.STRING)),
      message("ErrorResponse", field("error_code", 1, Type.INT32), field("error_message", 2, Type.STRING)),
    ],
    service: [
      {
        name: "ServerReflection",
        method: [
          {
            name: "ServerReflectionInfo",
            inputType: `${pkg}ServerReflectionRequest`,
            outputType: `${pkg}ServerReflectionResponse`,
            clientStreaming: true,
            serverStreaming: true,
          },
        ],
      },
    ],
  });
  const details = create(FileDescriptorProtoSchema, {
    name: "details.proto",
    package: "google.rpc",
    syntax: "proto3",
    messageType: [
      message("ErrorInfo", field("reason", 1, Type.STRING), field("domain", 2, Type.STRING)),
      message("RequestInfo", field("request_id", 1, Type.STRING)),
    ],
  });
  return createFileRegistry(create(FileDescriptorSetSchema, { file: [reflection, details] }));
}

// Gets the files that describe these services, and the files that they import, from the server.
async function described(rest, first, services) {
  // Reflection is a bidirectional stream, which gRPC-web does not support. gRPC is used instead, with one request a stream.
  const client = createClient(first.getService("grpc.reflection.v1.ServerReflection"), createGrpcTransport({ baseUrl: rest }));
  const ask = async (name, value) => {
    const requests = async function* () {
      yield { messageRequest: { case: name, value } };
    };
    for await (const response of client.serverReflectionInfo(requests())) return response.messageResponse;
    throw new Error("no response of the reflection service");
  };
  const files = new Map();
  const take = async (name, value) => {
    const response = await ask(name, value);
    if (response.case !== "fileDescriptorResponse") throw new Error(`no descriptor of ${value}: ${JSON.stringify(response.value)}`);
    for (const bytes of response.value.fileDescriptorProto) {
      const file = fromBinary(FileDescriptorProtoSchema, bytes);
      files.set(file.name, file);
    }
  };
  for (const service of services) await take("fileContainingSymbol", service);
  // Iteration over a Map includes entries that are added meanwhile.
  for (const [, file] of files) {
    for (const name of file.dependency) if (!files.has(name)) await take("fileByFilename", name);
  }
  const listed = await ask("listServices", "");
  // A registry needs an import before the file that imports it.
  const ordered = new Set();
  const place = (file) => {
    file.dependency.forEach((name) => place(files.get(name)));
    ordered.add(file);
  };
  for (const file of files.values()) place(file);
  const registry = createFileRegistry(create(FileDescriptorSetSchema, { file: [...ordered] }));
  return { registry, listed: listed.value.service.map((service) => service.name).sort() };
}

// Converts a message to REST's JSON. The standard JSON form cannot be used: it writes 64-bit integers as strings and
// shortens timestamps.
function plain(message) {
  if (message.desc.typeName === "google.protobuf.Timestamp") {
    const { seconds, nanos } = message.message;
    const whole = new Date(Number(seconds) * 1000).toISOString().slice(0, 19);
    return `${whole}.${String(Math.floor(nanos / 1000)).padStart(6, "0")}Z`;
  }
  const scalar = (value) => (typeof value === "bigint" ? Number(value) : value);
  const fields = {};
  for (const field of message.fields) {
    // Fields with implicit presence have their default value; other unset fields are absent.
    if (field.presence !== IMPLICIT && !message.isSet(field) && field.fieldKind !== "list" && field.fieldKind !== "map") {
      if (!OMITTED.includes(field.name)) fields[field.name] = null;
      continue;
    }
    const value = message.get(field);
    if (field.fieldKind === "message") fields[field.name] = plain(value);
    else if (field.fieldKind === "list") fields[field.name] = [...value].map((one) => (field.listKind === "message" ? plain(one) : scalar(one)));
    else if (field.fieldKind === "map") fields[field.name] = Object.fromEntries([...value].map(([name, one]) => [name, scalar(one)]));
    else fields[field.name] = scalar(value);
  }
  return fields;
}
const IMPLICIT = 2; // google.protobuf.FeatureSet.FieldPresence

async function main() {
  const rest = env("ASSAY_REST");
  const first = known();
  const services = ["assay.v1.EvalService", "assay.v1.JobService", "assay.v1.MeService"];
  const { registry, listed } = await described(rest, first, services);
  const transport = createGrpcWebTransport({ baseUrl: rest, httpVersion: "1.1" });
  const [evals, jobs, me] = services.map((name) => createClient(registry.getService(name), transport));
  const bearer = (token) => ({ headers: { Authorization: `Bearer ${token}` }, timeoutMs: 30_000 });
  const key = bearer(env("ASSAY_API_KEY"));

  const lines = (await readFile(env("ASSAY_PREDICTIONS"), "utf8")).split("\n").filter(Boolean).map((line) => JSON.parse(line));
  const predictions = lines.map(({ item_id: itemId, prediction }) => {
    const value = typeof prediction === "string" ? { case: "label", value: prediction } : { case: "ranking", value: { ids: prediction } };
    return { itemId, prediction: { value } };
  });
  const made = await evals.createEval({ suiteId: env("ASSAY_SUITE"), label: LABEL, predictions }, key);

  const started = Date.now();
  let job;
  for (;;) {
    const response = await jobs.getJob({ jobId: made.job.id }, key);
    job = plain(reflect(registry.getMessage("assay.v1.Job"), response.job));
    if (FINAL_STATES.includes(job.status)) break;
    if (Date.now() - started > JOB_TIMEOUT_MS) throw new Error(`the job did not finish: ${JSON.stringify(job)}`);
    await pause(POLL_INTERVAL_MS);
  }

  const mistake = await jobs.getJob({ jobId: NO_JOB }, key).then(
    () => Promise.reject(new Error("a job that does not exist was returned")),
    (error) => ConnectError.from(error),
  );
  const detail = (name) => {
    const [found] = mistake.findDetails(first.getMessage(`google.rpc.${name}`));
    if (!found) throw new Error(`an error without ${name}: ${mistake}`);
    return found;
  };

  let headers;
  const who = await me.getMe({}, { ...key, onHeader: (given) => (headers = given) });
  const signedIn = await me.getMe({}, bearer(env("ASSAY_SESSION")));
  // Browsers also use HTTP/2.
  const second = createGrpcWebTransport({ baseUrl: rest, httpVersion: "2" });
  const overHttp2 = await createClient(registry.getService("assay.v1.MeService"), second).getMe({}, key);

  console.log(
    JSON.stringify({
      job,
      error: {
        code: detail("ErrorInfo").reason.toLowerCase(),
        // NotFound -> NOT_FOUND
        status: Code[mistake.code].replace(/(?<=.)(?=[A-Z])/g, "_").toUpperCase(),
        message: mistake.rawMessage,
        request_id_header_matches: detail("RequestInfo").requestId === mistake.metadata.get("x-request-id"),
      },
      principals: { key: who.me.principal, session: signedIn.me.principal },
      principal_over_http2: overHttp2.me.principal,
      headers: { "x-request-id": headers.get("x-request-id"), "x-ratelimit-limit": headers.get("x-ratelimit-limit") },
      services: listed,
    }),
  );
}

await main();
// Exits at once: open HTTP/2 connections would keep the process alive for a while.
process.exit(0);
