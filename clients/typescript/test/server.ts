// The server that most tests share, on a free port.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestProject } from "vitest/node";

import { startServer } from "./processes.js";

declare module "vitest" {
  export interface ProvidedContext {
    url: string;
  }
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const folder = mkdtempSync(join(tmpdir(), "kbcore-"));
  const server = await startServer(folder);
  project.provide("url", server.url);
  return async () => {
    await server.stop();
    rmSync(folder, { recursive: true });
  };
}
