// Writes src/schema.ts from openapi.json, which `python docs/generate.py --openapi` prints.
import { readFileSync, writeFileSync } from "node:fs";
import openapiTS, { astToString } from "openapi-typescript";

const folder = new URL("../", import.meta.url);
const document = JSON.parse(readFileSync(new URL("openapi.json", folder), "utf8"));
const isHeader = (parameter) => parameter.in === "header" || document.components.parameters[parameter.$ref?.split("/").pop()]?.in === "header";
for (const operations of Object.values(document.paths)) {
  for (const operation of Object.values(operations)) {
    // The client sets the headers: tenant, database, transaction, keys and preferences.
    if (operation.parameters) operation.parameters = operation.parameters.filter((parameter) => !isHeader(parameter));
  }
}
const tree = await openapiTS(document, { alphabetize: true });
const note = "// Written by scripts/api_types.mjs from the OpenAPI document of the server.";
writeFileSync(new URL("src/schema.ts", folder), `${note}\n\n${astToString(tree)}`);
