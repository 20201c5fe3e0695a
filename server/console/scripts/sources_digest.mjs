// Writes the digest of the sources beside the compiled files, so that a test without Node can tell
// whether the compiled files belong to the sources.
import { createHash } from "node:crypto";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const root = new URL("..", import.meta.url).pathname;
const names = ["index.html", "package.json", "package-lock.json", "tsconfig.json", "vite.config.ts"];
for (const folder of ["public", "src"]) {
  for (const entry of readdirSync(join(root, folder), { recursive: true, withFileTypes: true })) {
    const path = join(entry.parentPath, entry.name).slice(root.length);
    if (entry.isFile() && !path.endsWith(".test.ts") && !entry.name.includes("kb.grammar.") && entry.name !== "schema.d.ts") names.push(path);
  }
}
names.push("src/language/kb.grammar", "../../docs/operations/runbook.md");
const digest = createHash("sha256");
for (const name of [...new Set(names)].sort()) {
  digest.update(`${name}\n`).update(createHash("sha256").update(readFileSync(join(root, name))).digest());
}
writeFileSync(join(root, "../kbserver/console/sources.sha256"), `${digest.digest("hex")}\n`);
