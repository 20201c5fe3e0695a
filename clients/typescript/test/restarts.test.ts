import { createHmac } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";

import { connect, type AnswersChanged, type GoalAnswer } from "../src/index.js";
import { startServer, type RunningServer } from "./processes.js";

const STARTS_MS = 150_000;
const SECRET = `whsec_${Buffer.from("k".repeat(32)).toString("base64")}`;

let folder: string;
let servers: RunningServer[];

async function start(options: Parameters<typeof startServer>[1] = {}): Promise<RunningServer> {
  const server = await startServer(folder, options);
  servers.push(server);
  return server;
}

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "kbcore-"));
  servers = [];
});

afterEach(async () => {
  for (const server of servers) await server.kill();
  rmSync(folder, { recursive: true });
});

const names = (answers: GoalAnswer[]) => answers.map((answer) => answer.args![0]);
const rows = ({ appeared, disappeared }: AnswersChanged) => [names(appeared), names(disappeared)];

describe("a server that is killed and started again", () => {
  test.each(["mine", undefined])("following misses and repeats nothing (id %s)", async (id) => {
    const first = await start();
    const port = Number(new URL(first.url).port);
    const retries = { attempts: 2000, firstDelay: 20, maxDelay: 100 };
    const kb = connect(first.url, { tenant: "t", retries });
    await kb.tell("p(1)");
    const changes = kb.follow("p(?x)", id === undefined ? {} : { id });
    const items: AnswersChanged[] = [];
    const take = async (count: number) => {
      for (let index = 0; index < count; index++) items.push((await changes.next()).value!);
    };
    await take(1);
    await kb.tell("p(2)");
    await take(1);
    await kb.tell("p(3)"); // committed, and not read before the kill
    await first.kill();
    const waiting = take(1); // reads while there is no server
    const second = await start({ port });
    expect(second.url).toBe(first.url);
    const writer = connect(second.url, { tenant: "t" });
    await writer.retract("p(1)");
    await writer.tell("p(4)");
    await waiting;
    await take(2);
    await changes.return(undefined);
    expect(items.map(rows)).toEqual([[["1"], []], [["2"], []], [["3"], []], [[], ["1"]], [["4"], []]]);
    const commits = items.map((item) => item.commitSeq);
    expect(commits).toEqual([...new Set(commits)].sort((a, b) => a - b));
  }, STARTS_MS);

  test("a subscription and its webhook are there after the kill", async () => {
    const bodies: string[] = [];
    let arrived: () => void = () => undefined;
    const receiver = createServer((request, response) => {
      let body = "";
      request.on("data", (chunk: Buffer) => (body += chunk.toString()));
      request.on("end", () => {
        const signed = `${request.headers["webhook-id"]}.${request.headers["webhook-timestamp"]}.${body}`;
        const key = Buffer.from(SECRET.slice(6), "base64");
        const expected = `v1,${createHmac("sha256", key).update(signed).digest("base64")}`;
        if (request.headers["webhook-signature"] === expected) bodies.push(body);
        response.end();
        arrived();
      });
    });
    await new Promise<void>((resolve) => receiver.listen(0, "127.0.0.1", resolve));
    const hook = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/hooks`;
    const appeared = () => bodies.map((body) => names((JSON.parse(body) as { data: AnswersChanged }).data.appeared));
    const until = async (count: number) => {
      while (new Set(bodies).size < count) await new Promise<void>((resolve) => (arrived = resolve));
    };
    try {
      const settings = { WEBHOOK_URLS: hook, WEBHOOK_PRIVATE_ADDRESSES: "true" };
      const first = await start({ settings });
      const kb = connect(first.url, { tenant: "t" });
      const made = await kb.subscribe("p(?x)", { id: "mine", webhook: { url: hook, secret: SECRET } });
      expect([made.id, made.webhook, made.durable]).toEqual(["mine", hook, true]);
      await kb.tell("p(1)");
      await until(1);
      await first.kill();
      const again = connect((await start({ settings })).url, { tenant: "t" });
      const listed = async () => (await again.subscriptions()).map(({ id, count, webhook }) => [id, count, webhook]);
      await expect.poll(listed, { timeout: 20_000 }).toEqual([["mine", 1, hook]]); // goals are evaluated again after a start
      await again.tell("p(2)");
      while (!appeared().some(([name]) => name === "2")) await new Promise<void>((resolve) => (arrived = resolve));
      // At least once: a delivery that was not recorded before the kill comes again.
      expect(appeared().map(([name]) => name).filter((name, index, all) => all.indexOf(name) === index)).toEqual(["1", "2"]);
      expect([await again.unsubscribe("mine"), await again.unsubscribe("mine")]).toEqual([true, false]);
      expect(await again.subscriptions()).toEqual([]);
    } finally {
      await new Promise((resolve) => receiver.close(resolve));
    }
  }, STARTS_MS);
});
