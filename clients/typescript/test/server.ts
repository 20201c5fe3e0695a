// A real server for the tests: in memory, on a free port, started with the Python of KBCORE_PYTHON.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestProject } from "vitest/node";

declare module "vitest" {
  export interface ProvidedContext {
    url: string;
  }
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const folder = mkdtempSync(join(tmpdir(), "kbcore-"));
  const python = process.env["KBCORE_PYTHON"] ?? "python";
  const args = ["-m", "kbserver.cli", "serve", "--port", "0", "--storage-dir", folder];
  const server = spawn(python, args, { stdio: ["ignore", "pipe", "pipe"] });
  const url = await new Promise<string>((resolve, reject) => {
    let output = "";
    const read = (chunk: Buffer) => {
      output += chunk.toString();
      const found = /http:\/\/[0-9.]+:[0-9]+/.exec(output);
      if (found) resolve(found[0]);
    };
    server.stdout.on("data", read);
    server.stderr.on("data", read);
    server.once("error", reject);
    server.once("exit", () => reject(new Error(`the server did not start:\n${output}`)));
  });
  project.provide("url", url);
  return async () => {
    server.removeAllListeners("exit");
    const ended = new Promise((resolve) => server.once("exit", resolve));
    server.kill("SIGTERM");
    await ended;
    rmSync(folder, { recursive: true });
  };
}
