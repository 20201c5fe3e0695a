import { readFileSync } from "node:fs";
import { describe, expect, inject, test } from "vitest";

import { connect, isKBError, KBError, ERROR_CODES, type GoalAnswer, type KnowledgeBase } from "../src/index.js";
import { HISTORIC, READS } from "../src/operations.js";

/** The parts of an operation of the OpenAPI document that the tests read. */
interface Described {
  parameters?: { name?: string }[];
  requestBody?: { content: Record<string, { schema: { $ref?: string } }> };
}

const url = inject("url");
let tenants = 0;

function empty(): KnowledgeBase {
  return connect(url, { tenant: `t${++tenants}` });
}

async function family(): Promise<KnowledgeBase> {
  const kb = empty();
  await kb.tell("parent(ann, bob). parent(bob, cid).");
  await kb.teach("ancestor(?x, ?y) :- parent(?x, ?y). ancestor(?x, ?z) :- parent(?x, ?y), ancestor(?y, ?z).");
  return kb;
}

async function failure(work: Promise<unknown>): Promise<KBError> {
  const error: unknown = await work.then(() => undefined, (reason: unknown) => reason);
  if (!isKBError(error)) throw new Error(`no KBError: ${String(error)}`);
  return error;
}

const document = JSON.parse(readFileSync(new URL("../openapi.json", import.meta.url), "utf8")) as {
  paths: Record<string, Record<string, { "x-role"?: string }>>;
  components: { schemas: Record<string, { properties?: { code?: { enum?: string[] } } }> };
};

describe("episodes and corrections", () => {
  test("a fact leads to what was said", async () => {
    const kb = empty();
    const said = await kb.addEpisode({ speaker: "ann", text: "I like tea.", session: "chat-1" });
    expect((await kb.addEpisode({ speaker: "ann", text: "I like tea.", session: "chat-1" })).id).toBe(said.id);
    await kb.tell("likes", ["ann", "tea"], { evidence: [{ episode: said.id, start: 0, end: 11 }] });
    const found = await kb.episode(said.id);
    expect([found.text, found.totalFacts, found.facts[0]?.evidence]).toEqual([
      "I like tea.", 1, [{ episode: said.id, start: 0, end: 11 }],
    ]);
    expect((await kb.episodes({ session: "chat-1" })).total).toBe(1);
    const window = await kb.context({ goals: ["likes(?x, ?y)"], citations: true });
    expect(window.sources?.map((source) => [source.number, source.text])).toEqual([[1, "I like tea."]]);
  });

  test("rule sets are deployed, compared and rolled back", async () => {
    const kb = empty();
    const text = "can(?u) :- level(?u, ?l), ?l >= 3. level(ann, 3). level(bob, 2).";
    const first = await kb.deploy("access", { text, expectedVersion: 0, message: "first" });
    expect([first.version, first.added.length, first.facts.addedCount]).toEqual([1, 1, 2]);
    const edited = text.replace(">= 3", ">= 2");
    const dry = await kb.deploy("access", { text: edited, dryRun: true });
    expect([dry.commit, dry.changed.length]).toEqual([null, 1]);
    expect((await kb.deploy("access", { text: edited })).version).toBe(2);
    await expect(kb.deploy("access", { text, expectedVersion: 1 })).rejects.toMatchObject({ code: "CONFLICT" });
    expect((await kb.rollback("access")).version).toBe(3);
    expect((await kb.ruleSets()).map((each) => [each.name, each.version])).toEqual([["access", 3]]);
    expect((await kb.ruleSetVersions("access")).map((each) => each.version)).toEqual([3, 2, 1]);
    expect((await kb.ruleSetDiff("access", 1, 2)).changed.length).toBe(1);
  });

  test.each(["..", ".", ""])("the name %j never names another path", async (name) => {
    const paths: string[] = [];
    const kb = connect("http://127.0.0.1:1", {
      fetch: (input) => Promise.reject(new Error(paths.push(String(input)).toString())),
    });
    const calls = [
      kb.ruleSet(name), kb.ruleSetDiff(name, 1, 2), kb.rollback(name), kb.deploy(name, { text: "p(a)." }),
      kb.dropScope(name), kb.episode(name), kb.unsubscribe(name),
    ];
    for (const call of calls) await expect(call).rejects.toMatchObject({ code: "VALIDATION_ERROR" });
    expect(paths).toEqual([]);
  });

  test("a view shows what it admits, and labels what is stored", async () => {
    const kb = empty();
    await kb.teach("@levels trust: web < user.");
    await kb.tell("person(ann).");
    await kb.viewed({ labels: { trust: "web" } }).tell("person(eve).");
    const user = kb.viewed({ view: { trust: "user" } });
    expect([...(await user.ask("person(?x)"))]).toEqual([["ann"]]);
    expect([...(await user.viewed({ labels: { trust: "web" } }).ask("person(?x)"))]).toEqual([["ann"]]);
    expect([...(await kb.ask("person(?x)"))]).toEqual([["ann"], ["eve"]]);
    const { rows } = await kb.ask("person(?x)", { withTrust: true });
    expect(rows.map((row) => "trust" in row && row.trust)).toEqual(["user", "web"]);
    await user.transaction((inside) => inside.viewed({ labels: { trust: "web" } }).tell("person(zoe)."));
    expect([...(await user.ask("person(?x)"))]).toEqual([["ann"]]);
  });

  test("facts are corrected, changes undone, subjects purged", async () => {
    const kb = empty();
    await kb.tell("likes(ann, tea).");
    const done = await kb.correct({ old: "likes(ann, tea)", new: "likes(ann, coffee)", reason: "said so" });
    const undone = await kb.undo({ commitSeq: done.commitSeq });
    expect([undone.undoneSeq, undone.retracted, undone.restored]).toEqual([done.commitSeq, 1, 1]);
    expect((await kb.purge({ subject: "ann", dryRun: true })).factCount).toBe(1);
    const purged = await kb.purge({ subject: "ann" });
    expect([purged.factCount, purged.erased]).toEqual([1, true]);
    expect((await kb.purges()).map((each) => each.purgeId)).toEqual([purged.purgeId]);
    expect(await kb.query("likes(?x, ?y)")).toEqual([]);
  });
});

describe("memory of an agent about a user", () => {
  test("messages go in, the text for a prompt comes out", async () => {
    const memory = empty().memory();
    const moved = { role: "user", content: "I moved to Berlin.", at: "2026-11-20T09:00:00Z", id: "m1" };
    const added = await memory.add([moved, { role: "assistant", content: "Nice." }], { session: "s1", agent: "amy" });
    expect([added.episodeIds[0], added.asserted]).toEqual(["m1", 2]);
    const answer = await memory.search("Who moved to Berlin?", { maxTokens: 200 });
    expect(answer.text).toContain("I moved to Berlin.");
    expect(answer.sources[0]!.speaker).toBe(memory.kb.tenant);
    expect((await memory.search("Berlin", { agent: "bob" })).text).toBe("");
    await memory.update("lives_in(mia, Hamburg)", { since: "2024-01-01" });
    await memory.update({ text: "lives_in(mia, Berlin)", evidence: [{ episode: "m1" }] }, { since: "2026-11-13" });
    expect((await memory.facts()).facts.map((each) => each.fact)).toEqual(["lives_in(mia, Berlin)"]);
    expect((await memory.history("lives_in(mia, ?where)")).totalEvents).toBe(3);
    expect((await memory.forget("lives_in(mia, ?where)")).textCount).toBe(1);
    expect((await memory.forget("lives_in(mia, ?where)", { dryRun: false })).dryRun).toBe(false);
    expect((await memory.facts()).totalFacts).toBe(0);
  });

  test("another user does not have these memories", async () => {
    const kb = empty();
    await kb.memory().add("I like tea.");
    expect((await kb.memory(`${kb.tenant}-other`).search("tea")).text).toBe("");
  });
});

describe("writes", () => {
  test("facts as texts and as arguments", async () => {
    const kb = empty();
    expect((await kb.tell("parent(ann, bob)")).asserted).toBe(1);
    expect((await kb.tell("age", ["ann", 61], { confidence: 0.5 })).asserted).toBe(1);
    await kb.tellMany([{ predicate: "likes", args: ["ann", "tea"] }, { predicate: "likes", args: ["bob", "tea"] }]);
    const rows = await kb.query("age(?who, ?n)");
    expect(rows.map((row) => [row.args, row.confidence])).toEqual([[["ann", "61"], 0.5]]);
    expect(await kb.query("likes(?who, tea)", { limit: 1 })).toHaveLength(1);
  });

  test("numbers keep their digits or are refused", async () => {
    const kb = empty();
    await kb.tell("serial", ["a", 28857836529306024611912n, -0.5, Number.MAX_SAFE_INTEGER]);
    expect([...(await kb.ask("serial(?x, ?n, ?m, ?k)"))]).toEqual([
      ["a", "28857836529306024611912", "-0.5", "9007199254740991"],
    ]);
    for (const number of [2 ** 53, -1e300, Infinity, NaN]) {
      expect((await failure(kb.tell("serial", ["b", number]))).message).toContain("give it as text or bigint");
    }
  });

  test("values that cannot be computed are counted", async () => {
    const kb = empty();
    await kb.tell("n(9223372036854775807). n(5).");
    await kb.teach("p(?y) :- n(?x), ?y = ?x + 1.");
    const answers = await kb.ask("p(?x)");
    expect([[...answers], answers.warnings, (await kb.ask("n(?x)")).warnings]).toEqual([[["6"]], 1, 0]);
  });

  test("a discarded fact is counted", async () => {
    const kb = empty();
    await kb.teach("@key capital(?country, _).");
    await kb.tell("capital(norway, oslo).");
    const facts = [{ predicate: "capital", args: ["norway", "bergen"], confidence: 0.1 }];
    const outcome = await kb.tellMany(facts, { conflictStrategy: "CONFIDENCE" });
    expect([outcome.asserted, outcome.discarded]).toEqual([0, 1]);
  });

  test("rules are taught, listed and retracted", async () => {
    const kb = await family();
    const taught = await kb.teach("@named: adult(?x) :- age(?x, ?n), ?n >= 18.");
    expect(taught.rules).toHaveLength(1);
    expect((await kb.rules()).rules.map((rule) => rule.id)).toContain("named");
    await kb.retractRule("named");
    expect((await kb.rules()).rules).toHaveLength(2);
    expect((await kb.predicates()).predicates.map((each) => each.predicate)).toEqual(["ancestor", "parent"]);
  });

  test("a retraction takes its conclusions along", async () => {
    const kb = await family();
    const outcome = await kb.retract("parent(bob, ?who)");
    expect([outcome.retracted, outcome.cascaded]).toEqual([1, 2]);
    expect((await kb.ask("ancestor(ann, ?who)")).one()).toEqual(["ann", "bob"]);
  });

  test("a transaction commits together, or not at all", async () => {
    const kb = empty();
    const count = await kb.transaction(async (inside) => {
      await inside.tell("p(a)");
      expect((await kb.ask("p(?x)")).length).toBe(0);
      return (await inside.ask("p(?x)")).length;
    });
    expect([count, (await kb.ask("p(?x)")).length]).toEqual([1, 1]);
    const stopped = kb.transaction(async (inside) => {
      await inside.tell("p(b)");
      await expect(inside.transaction(async () => 1)).rejects.toThrow("inside another one");
      throw new Error("stop");
    });
    await expect(stopped).rejects.toThrow("stop");
    expect((await kb.ask("p(?x)")).one()).toEqual(["a"]);
  });

  test("tenants are apart", async () => {
    const kb = await family();
    expect((await kb.open(`t${++tenants}`).ask("parent(?x, ?y)")).length).toBe(0);
  });
});

describe("reads", () => {
  test("answers of one literal and of several", async () => {
    const kb = await family();
    const answers = await kb.ask("ancestor(ann, ?who)");
    expect([...answers]).toEqual([["ann", "bob"], ["ann", "cid"]]);
    expect([...(await kb.ask("parent(ann, ?x), parent(?x, ?y)"))]).toEqual([["bob", "cid"]]);
    expect(() => answers.one()).toThrow("has 2 answers");
    const none = await kb.ask("anncestor(ann, ?who)");
    expect(() => none.one()).toThrow("anncestor(ann, ?who) has no answer; no fact or rule for anncestor/2");
  });

  test("several goals of one state", async () => {
    const kb = await family();
    const [ancestors, pairs, none] = await kb.askMany(["ancestor(ann, ?who)", "parent(ann, ?x), parent(?x, ?y)", "friend(?x)"]);
    expect([...ancestors!]).toEqual([["ann", "bob"], ["ann", "cid"]]);
    expect([...pairs!]).toEqual([["bob", "cid"]]);
    expect([none!.length, none!.unknownPredicates]).toEqual([0, ["friend/1"]]);
    const refused = await failure(kb.askMany(["ancestor(ann, ?who)", "p("]));
    expect(refused.message).toContain("goals[1]");
    expect(await kb.askMany([])).toEqual([]);
  });

  test("pages", async () => {
    const kb = empty();
    await kb.tellMany(Array.from({ length: 25 }, (_, n) => ({ predicate: "n", args: [String(n)] })));
    const sizes: number[] = [];
    const seen = new Set<string>();
    for await (const page of kb.askPages("n(?x)", 10)) {
      sizes.push(page.length);
      for (const [value] of page) seen.add(value!);
    }
    expect([sizes, seen.size]).toEqual([[10, 10, 5], 25]);
  });

  test("proofs, plans of changes, and what is missing", async () => {
    const kb = await family();
    const [proof] = await kb.prove("ancestor(ann, cid)");
    expect(proof?.result).toMatchObject({ predicate: "ancestor", args: ["ann", "cid"] });
    expect(await kb.explain("ancestor(ann, cid)")).toContain("parent(bob, cid)  stored");
    const { candidates } = await kb.whyNot("ancestor(cid, ?who)");
    expect(candidates.length).toBeGreaterThan(0);
    const { proposals } = await kb.howTo("ancestor(cid, dee)");
    expect(proposals[0]).toEqual({ add: ["parent(cid, dee)"], remove: [] });
    const preview = await kb.preview({ forget: "parent(ann, bob)" });
    expect(preview.counts.becomesFalse).toBe(3);
    const { diagnostics } = await kb.check("q(?x) :- p(?y).");
    expect(diagnostics.map((each) => each.name)).toContain("unsafe");
  });

  test("scopes", async () => {
    const kb = await family();
    await kb.fork("draft");
    await kb.execute("parent(cid, dee).", { scope: "draft" });
    expect(await kb.scopes()).toEqual(["draft"]);
    expect((await kb.diff(null, "draft")).added).toHaveLength(1);
    expect((await kb.merge("draft")).merged).toBe(1);
    expect((await kb.ask("parent(cid, ?x)")).one()).toEqual(["cid", "dee"]);
    await kb.dropScope("draft");
    expect(await kb.scopes()).toEqual([]);
  });

  test("operations that only translate", async () => {
    const kb = await family();
    expect((await kb.neighbours("ann")).facts.map((fact) => fact.args)).toEqual([["ann", "bob"]]);
    expect((await kb.contextSummary()).totalFacts).toBe(2);
    expect((await kb.decay({ threshold: 0, dryRun: true })).evictedCount).toBe(0);
    expect((await kb.consolidate({ minGroupSize: 2, dryRun: true })).factsConsolidated).toBe(0);
    expect(await kb.slowGoals()).toEqual([]);
    await kb.clearSession("s1");
  });

  test("context windows", async () => {
    const kb = await family();
    const window = await kb.context({ goals: ["ancestor(ann, ?who)"], maxFacts: 5, sessionId: "s1" });
    expect(JSON.stringify(window)).toContain("ancestor");
    await kb.ingest(["likes(ann, tea).", { role: "user", content: "likes(bob, rum).", at: "2026-09-01" }], { speaker: "ann" });
    const { episodes } = await kb.episodes();
    expect(episodes.slice(-2).map((each) => [each.speaker, each.text])).toEqual([
      ["ann", "likes(ann, tea)."],
      ["ann", "likes(bob, rum)."],
    ]);
    const diff = await kb.contextDiff("s1");
    expect(diff).toHaveProperty("currentWindowId");
  });

  test("every operation of the interface is there, with its types", async () => {
    const kb = await family();
    const { data } = await kb.client.POST("/aggregate", { body: { predicate: "parent", op: "COUNT" } });
    expect(data?.result).toBe(2);
  });
});

describe("what was known", () => {
  test("reads answer from an earlier instant, and nothing else takes one", async () => {
    const kb = await family();
    const { events } = await kb.factHistory("parent");
    const before = events[0]!.at;
    while (Date.now() <= before) await kb.scopes(); // the correction has a later instant
    await kb.correct({ old: "parent(bob, cid)", new: "parent(bob, dan)", reason: "said so" });
    await kb.fork("draft");
    const page = (await kb.factHistory("parent(bob, ?x)", { limit: 2 })).events;
    expect(page.map((event) => [event.cause, event.reason])).toEqual([["correct", "said so"], ["correct", "said so"]]);
    for (const at of [before, new Date(before), new Date(before).toISOString()]) {
      const past = kb.knownAt(at);
      expect((await past.ask("parent(bob, ?x)")).one()).toEqual(["bob", "cid"]);
    }
    const past = kb.knownAt(before);
    expect(await past.query("parent(?x, ?y)")).toHaveLength(2);
    expect(await past.explain("parent(bob, ?x)")).toContain("cid");
    expect((await past.rules()).rules).toEqual([]); // taught after the facts
    expect((await past.predicates()).predicates.map((each) => each.predicate)).toEqual(["parent"]);
    expect([await past.scopes(), await kb.scopes()]).toEqual([[], ["draft"]]);
    expect((await past.episodes()).total).toBe(0);
    expect(JSON.stringify(await past.context({ goals: ["parent(bob, ?x)"] }))).toContain("cid");
    const { data } = await past.client.POST("/aggregate", { body: { predicate: "parent", op: "COUNT" } });
    expect(data?.result).toBe(2);
    for (const refused of [
      past.tell("p(a)"), past.transaction(async () => 1), past.subscribe("p(?x)"), past.factHistory("p"),
      past.events().next(), past.follow("p(?x)").next(), past.contextDiff("s1"),
    ]) {
      expect((await failure(refused)).code).toBe("VALIDATION_ERROR");
    }
    const error = await failure(kb.knownAt(1).rules());
    expect([error.code, error.details?.["oldest"]]).toEqual(["VALIDATION_ERROR", expect.any(Number)]);
  });

  test("the reads that take an instant are those of the interface", () => {
    const takes: Record<string, string[]> = { GET: [], POST: [] };
    const bodies = document.components.schemas as Record<string, { properties?: Record<string, unknown> }>;
    for (const [path, operations] of Object.entries(document.paths)) {
      const { get, post } = operations as Record<string, Described>;
      if (get?.parameters?.some(({ name }) => name === "knownAt")) takes["GET"]!.push(path);
      const shape = post?.requestBody?.content["application/json"]?.schema.$ref?.split("/").at(-1);
      if (shape !== undefined && bodies[shape]?.properties?.["knownAt"]) takes["POST"]!.push(path);
    }
    expect(takes["GET"]!.length).toBeGreaterThan(3);
    for (const method of ["GET", "POST"]) expect([...HISTORIC[method]!].sort()).toEqual(takes[method]!.sort());
  });
});

describe("errors", () => {
  test("mistakes in a text have their places", async () => {
    const error = await failure(empty().teach("happy(?x) :- parent(?x, ?y"));
    expect([error.code, error.status, error.errors[0]?.line]).toEqual(["VALIDATION_ERROR", 400, 1]);
    expect(error.message).toContain("^");
    expect(error.requestId).toMatch(/./);
  });

  test("codes", async () => {
    const kb = await family();
    expect((await failure(kb.retractRule("none"))).code).toBe("NOT_FOUND");
    expect((await failure(kb.fork("draft", "nowhere"))).code).toBe("NOT_FOUND");
    await kb.teach("m(0) :- parent(_, _). m(?y) :- m(?x), ?y = ?x + 1.");
    expect((await failure(kb.ask("m(?x)", { timeoutMs: 50 }))).code).toBe("BUDGET_EXCEEDED");
    const page = async () => new Response("<html>", { status: 404 });
    expect((await failure(connect(url, { fetch: page }).ask("p(a)"))).code).toBe("NOT_A_SERVER");
  });

  test("the codes are those of the interface", () => {
    const codes = Object.entries(document.components.schemas)
      .filter(([name]) => /^Error\d+$/.test(name))
      .flatMap(([, schema]) => schema.properties?.code?.enum ?? []);
    expect(codes.length).toBeGreaterThan(10);
    expect(ERROR_CODES).toEqual(expect.arrayContaining(codes));
  });

  test("addresses", () => {
    for (const wrong of ["", "localhost:9300", "ftp://host", "http://user:secret@host", "http://host?x"]) {
      expect(() => connect(wrong)).toThrow(KBError);
    }
  });
});

describe("the connection", () => {
  /** A fetch that answers with these in turn, then as the server does; `seen` has the requests. */
  function scripted(...answers: (Response | Error)[]) {
    const seen: { url: string; headers: Headers }[] = [];
    const fetch = async (url: RequestInfo | URL, init?: RequestInit): Promise<Response> => {
      seen.push({ url: String(url), headers: new Headers(init?.headers) });
      const next = answers.shift();
      if (next instanceof Error) throw next;
      return next ?? globalThis.fetch(url, init);
    };
    return { seen, fetch, retries: { firstDelay: 1, maxDelay: 1 } };
  }

  function refusal(status: number, code: string, headers: Record<string, string> = {}, details: object | null = null) {
    return new Response(JSON.stringify({ code, message: "refused", details }), { status, headers });
  }

  const lost = () => new TypeError("fetch failed", { cause: { code: "ECONNRESET" } });
  const unsent = () => new TypeError("fetch failed", { cause: { code: "ECONNREFUSED" } });

  test("requests are repeated after 429, 503 and lost connections, with the same key", async () => {
    const script = scripted(refusal(429, "RATE_LIMITED", { "Retry-After": "0" }), refusal(503, "NOT_READY"), lost());
    const kb = connect(url, { tenant: `t${++tenants}`, ...script });
    await kb.tell("p(a)");
    const keys = script.seen.map(({ headers }) => headers.get("Idempotency-Key"));
    expect([keys.length, new Set(keys).size, keys[0]?.length]).toEqual([4, 1, 32]);
    expect((await kb.ask("p(?x)")).one()).toEqual(["a"]);
    expect(script.seen.at(-1)?.headers.has("Idempotency-Key")).toBe(false);
  });

  test("other errors are thrown at once", async () => {
    const script = scripted(refusal(409, "CONFLICT"));
    const error = await failure(connect(url, script).tell("p(a)"));
    expect([error.code, script.seen.length]).toEqual(["CONFLICT", 1]);
  });

  test("without a key a write is repeated only if it was not sent", async () => {
    const first = scripted(lost());
    expect((await failure(connect(url, { ...first, idempotency: false }).tell("p(a)"))).code).toBe("CONNECTION_FAILED");
    const second = scripted(unsent());
    await connect(url, { tenant: `t${++tenants}`, ...second, idempotency: false }).tell("p(a)");
    expect([first.seen.length, second.seen.length]).toEqual([1, 2]);
  });

  test("it gives up", async () => {
    const script = scripted(...Array.from({ length: 9 }, unsent));
    const error = await failure(connect(url, script).ask("p(?x)"));
    expect([error.code, script.seen.length]).toEqual(["CONNECTION_FAILED", 5]);
    expect(error.message).toContain("is the server running?");
    const patient = scripted(refusal(429, "RATE_LIMITED", { "Retry-After": "100" }));
    expect((await failure(connect(url, patient).ask("p(?x)"))).code).toBe("RATE_LIMITED");
  });

  test("reads wait for the writes of the connection, on a follower too", async () => {
    const script = scripted();
    const follower = url.replace("127.0.0.1", "localhost");
    const kb = connect(url, { tenant: `t${++tenants}`, ...script, readUrl: follower });
    await kb.ask("p(?x)");
    await kb.tell("p(a)");
    await kb.ask("p(?x)");
    await kb.transaction(async (inside) => inside.ask("p(?x)"));
    const [before, write, after, , inside] = script.seen;
    expect(before?.headers.has("X-Min-Seq")).toBe(false);
    expect(Number(after?.headers.get("X-Min-Seq"))).toBeGreaterThan(0);
    expect([before, write, after, inside].map((each) => each?.url.startsWith(follower))).toEqual([true, false, true, false]);
  });

  test("a redirect leads to another node with the same headers", async () => {
    const script = scripted(new Response(null, { status: 307, headers: { Location: `${url}/ask` } }));
    await connect(url, { ...script, apiKey: "key" }).ask("p(?x)");
    expect(script.seen.map(({ headers }) => headers.get("Authorization"))).toEqual(["Bearer key", "Bearer key"]);
  });

  test("a request without an answer times out", async () => {
    const silent = (_: RequestInfo | URL, init?: RequestInit) =>
      new Promise<Response>((_resolve, reject) => {
        init?.signal?.addEventListener("abort", () => reject(init.signal?.reason));
      });
    expect((await failure(connect(url, { fetch: silent, timeout: 20 }).ask("p(?x)"))).code).toBe("TIMED_OUT");
  });

  test("the paths that only read are those of the interface", () => {
    const readers = Object.entries(document.paths).filter(([, operations]) => operations["post"]?.["x-role"] === "reader");
    expect(readers.map(([path]) => path).sort()).toEqual([...READS].sort());
  });
});

describe("events", () => {
  test("changes arrive, and a lost stream goes on where it ended", async () => {
    const kb = empty();
    let streams = 0;
    const seen: (string | null)[] = [];
    const fetch = async (url: RequestInfo | URL, init?: RequestInit): Promise<Response> => {
      const response = await globalThis.fetch(url, init);
      if (!String(url).includes("/memory/events")) return response;
      seen.push(new Headers(init?.headers).get("Last-Event-ID"));
      await kb.tell(`p(${++streams})`);
      if (streams > 1) return response;
      const reader = response.body!.getReader(); // ends behind the first event
      const decoder = new TextDecoder();
      let text = "";
      while (!/data:.*\n\n/.test(text)) text += decoder.decode((await reader.read()).value);
      return new Response(text.slice(0, text.lastIndexOf("\n\n") + 2), response);
    };
    const watching = connect(url, { tenant: kb.tenant, fetch, retries: { firstDelay: 1, maxDelay: 1 } });
    const values: unknown[] = [];
    for await (const event of watching.events({ predicate: "p" })) {
      values.push((event.data["atom"] as { args: string[] }).args[0]);
      if (values.length === 2) break;
    }
    expect(values).toEqual(["1", "2"]);
    expect(seen[0]).toBeNull();
    expect(seen[1]).toMatch(/./);
  });

  const greeting = "retry: 3000\n: kbcore events\n\n";
  const event = (number: number, name: string) => {
    const data = { type: "fact_asserted", eventId: `l.${number}`, timestamp: 1, scope: null, atom: { args: [name] } };
    return `event: fact_asserted\nid: l.${number}\ndata: ${JSON.stringify(data)}\n\n`;
  };

  test("an event that is cut anywhere is asked for again", async () => {
    const whole = event(1, "a") + event(2, "b");
    for (let cut = event(1, "a").length; cut <= whole.length; cut++) {
      const seen: (string | null)[] = [];
      const texts = [greeting + whole.slice(0, cut), greeting + (cut < whole.length ? event(2, "b") : "") + event(3, "c")];
      const fetch = async (_: RequestInfo | URL, init?: RequestInit): Promise<Response> => {
        seen.push(new Headers(init?.headers).get("Last-Event-ID"));
        return new Response(texts.shift());
      };
      const values: unknown[] = [];
      for await (const { data } of connect(url, { fetch, retries: { firstDelay: 1, maxDelay: 1 } }).events()) {
        values.push((data["atom"] as { args: string[] }).args[0]);
        if (values.length === 3) break;
      }
      expect(values).toEqual(["a", "b", "c"]);
      expect(seen).toEqual([null, cut < whole.length ? "l.1" : "l.2"]);
    }
  });

  test("a stream that was open is opened again without end, one that never was is not", async () => {
    let asked = 0;
    const refused = () => new TypeError("fetch failed", { cause: { code: "ECONNREFUSED" } });
    const fetch = async (): Promise<Response> => {
      asked += 1;
      if (asked > 1 && asked < 50) throw refused();
      return new Response(greeting + event(asked, String(asked)));
    };
    const retries = { firstDelay: 1, maxDelay: 1 };
    const events = connect(url, { fetch, retries }).events();
    expect((await events.next()).value!.id).toBe("l.1");
    expect((await events.next()).value!.id).toBe("l.50");
    await events.return(undefined);
    const limited = connect(url, { fetch: async () => (asked++ ? Promise.reject(refused()) : new Response(greeting)), retries: { ...retries, events: 3 } });
    asked = 0;
    expect((await failure(limited.events().next())).code).toBe("CONNECTION_FAILED");
    expect(asked).toBe(4);
    asked = 1;
    expect((await failure(limited.events().next())).code).toBe("CONNECTION_FAILED");
    expect(asked).toBe(6);
  });

  test("a followed goal has its answers and each change of them", async () => {
    const kb = empty();
    await kb.tell("p(1)");
    const changes = kb.follow("p(?x), not q(?x)");
    expect((await changes.next()).value!.appeared).toEqual([{ bindings: { "?x": "1" } }]);
    await kb.tell("p(2)");
    expect((await changes.next()).value!.appeared).toEqual([{ bindings: { "?x": "2" } }]);
    await kb.tell("q(1)");
    expect((await changes.next()).value!.disappeared).toEqual([{ bindings: { "?x": "1" } }]);
    await changes.return(undefined);
  });

  test("following goes on after the server has forgotten the goal", async () => {
    const kb = empty();
    await kb.tell("p(1)");
    const changes = kb.follow("p(?x)", { id: "mine" });
    expect((await changes.next()).value!.appeared.length).toBe(1);
    const next = changes.next();
    await kb.client.DELETE("/goals/{id}", { params: { path: { id: "mine" } } });
    await kb.tell("p(2)");
    await kb.tell("p(3)");
    expect((await next).value!.appeared.map((answer: GoalAnswer) => answer.args)).toEqual([["2"]]);
    expect((await changes.next()).value!.appeared.map((answer: GoalAnswer) => answer.args)).toEqual([["3"]]);
    await changes.return(undefined);
  });

  test("a signal ends them", async () => {
    const stop = new AbortController();
    const events = empty().events({ signal: stop.signal });
    const next = events.next();
    stop.abort();
    expect((await next).done).toBe(true);
  });
});

test("the program of the page runs", async () => {
  const page = readFileSync(new URL("../../../docs/how-to/use-the-python-client.md", import.meta.url), "utf8");
  const program = /```ts\n(.*?)```/s.exec(page)![1]!.replace(/^import .*\n/m, "").replace('"http://127.0.0.1:9300"', "url");
  const { transpileModule, ModuleKind, ScriptTarget } = (await import("typescript")).default;
  const compilerOptions = { module: ModuleKind.ESNext, target: ScriptTarget.ES2022 };
  const { outputText } = transpileModule(`export const run = async () => {${program}}`, { compilerOptions });
  const lines: unknown[][] = [];
  const log = { log: (...values: unknown[]) => lines.push(values) };
  const run = new Function("url", "connect", "isKBError", "console", `${outputText.replace("export ", "")}; return run();`);
  await run(url, connect, isKBError, log);
  const shown = [...program.matchAll(/console\.log\(.*\/\/ (.*)$/gm)].map((match) => match[1]);
  expect(lines.map((values) => values.map((value) => (typeof value === "string" ? value : JSON.stringify(value))).join(" "))).toEqual(shown);
});
