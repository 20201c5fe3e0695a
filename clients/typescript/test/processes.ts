// Real servers for the tests: each on a folder, started with the Python of KBCORE_PYTHON.
import { spawn, type ChildProcess } from "node:child_process";

/** A server that runs. */
export interface RunningServer {
  url: string;
  /** End the process as a crash would, with SIGKILL. */
  kill(): Promise<void>;
  /** Let the server end by itself, with SIGTERM. */
  stop(): Promise<void>;
}

/** Start a server on a storage folder, by default on a free port; `settings` are environment variables. */
export async function startServer(
  folder: string,
  { port = 0, settings = {} }: { port?: number; settings?: Record<string, string> } = {},
): Promise<RunningServer> {
  const python = process.env["KBCORE_PYTHON"] ?? "python";
  const args = ["-m", "kbserver.cli", "serve", "--port", String(port), "--storage-dir", folder];
  const server = spawn(python, args, { stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, ...settings } });
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
  server.removeAllListeners("exit");
  return { url, kill: () => ended(server, "SIGKILL"), stop: () => ended(server, "SIGTERM") };
}

async function ended(server: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  if (server.exitCode !== null || server.signalCode !== null) return;
  const exit = new Promise((resolve) => server.once("exit", resolve));
  server.kill(signal);
  await exit;
}
