// Validates KEDA's objects, a JSON array on standard input, against their schemas.
import { readFileSync } from "node:fs";

const schemas = "../../target/tools/helm/node_modules/@kubernetes-models/keda/keda.sh/v1alpha1/index.js";
const kinds = await import(new URL(schemas, import.meta.url));

for (const object of JSON.parse(readFileSync(0, "utf8"))) {
  new kinds[object.kind](object).validate();
}
