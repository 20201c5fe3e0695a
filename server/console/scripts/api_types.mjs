// Writes src/api/schema.d.ts from an OpenAPI document: npm run types -- openapi.json [target]
import { readFileSync, writeFileSync } from "node:fs";
import openapiTS, { astToString } from "openapi-typescript";

const [source, target = new URL("../src/api/schema.d.ts", import.meta.url)] = process.argv.slice(2);
if (source === undefined) {
  console.error("usage: npm run types -- FILE [TARGET]; FILE is the document that GET /openapi.json returns");
  process.exit(2);
}
const tree = await openapiTS(JSON.parse(readFileSync(source, "utf8")), { alphabetize: true });
writeFileSync(target, `// Written by scripts/api_types.mjs from the OpenAPI document of the server.\n\n${astToString(tree)}`);
