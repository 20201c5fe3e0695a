import createClient, { type Client } from "openapi-fetch";

import { Answers } from "./answers.js";
import { KBError, isKBError, type ErrorCode } from "./errors.js";
import { messagesOf, type KBEvent } from "./events.js";
import { MemoryOperations, Operations } from "./operations.js";
import { post, type Body, type Schemas, type Sent } from "./requests.js";
import type { paths } from "./schema.js";
import { knownAt, pause, Transport, type Options, type Seen } from "./transport.js";

/**
 * An argument: text, a number or a boolean. In goals and patterns a text that starts with `?` is a variable. Whole
 * numbers beyond `Number.MAX_SAFE_INTEGER` are given as text or bigint: a number has lost some of their digits.
 */
export type Argument = string | number | bigint | boolean;

/** The constant of an argument; throws KBError for a number that is not the one that was written. */
function constantOf(argument: Argument): string {
  if (typeof argument === "number" && !(Number.isFinite(argument) && Math.abs(argument) <= Number.MAX_SAFE_INTEGER)) {
    throw new KBError("VALIDATION_ERROR", `args: ${argument} is not exact; give it as text or bigint`);
  }
  return String(argument);
}

/** Throw KBError for a part of a path that would name another path: of `..` the path before it. */
function checkPath(parts: object): void {
  for (const [name, value] of Object.entries(parts)) {
    if (["", ".", ".."].includes(String(value))) {
      throw new KBError("VALIDATION_ERROR", `${name}: ${JSON.stringify(value)} is not a name`);
    }
  }
}

/** Options of a goal: those of `POST /ask` without the goal. */
export type GoalOptions = Omit<Body<"Infer">, "text" | "predicate" | "args" | "goals">;

/** The unknown predicates and the number of warnings that an answer names in its headers. */
function noticesOf(response: Response): [string[], number] {
  const unknown = response.headers.get("X-Unknown-Predicates");
  const names = unknown ? unknown.split(", ").map(decodeURIComponent) : [];
  return [names, Number(response.headers.get("X-Answer-Warnings") ?? 0)];
}

type Subscribed = Schemas["Subscribed"];

/** An answer of a followed goal: an atom, or the `bindings` of a goal of several literals. */
export type GoalAnswer = Subscribed["answers"][number];

/** The answers of a followed goal that appeared and disappeared, with the last commit they include and its time. */
export interface AnswersChanged {
  appeared: GoalAnswer[];
  disappeared: GoalAnswer[];
  commitSeq: number;
  timestamp: number;
}

/** A knowledge base: all operations on one tenant of a server. */
export class KnowledgeBase extends Operations {
  /** The typed client of every operation of the HTTP interface, with the headers, retries and errors of this one. */
  readonly client: Client<paths>;

  constructor(
    private readonly transport: Transport,
    readonly tenant: string,
    readonly database: string,
    private readonly transactionId?: string,
    private readonly instant?: number | string,
    private readonly seen: Seen = {},
  ) {
    super();
    this.client = createClient<paths>({
      baseUrl: transport.url,
      headers: transport.headers(tenant, database, transactionId, seen),
      fetch: async (request) =>
        transport.send(instant === undefined ? request : await knownAt(request, transport.url, instant)),
    });
    this.client.use({ onRequest: ({ params }) => checkPath(params.path ?? {}) });
  }

  /** A knowledge base on another tenant of the same connection, known at the same instant, with the same view and labels. */
  open(tenant: string, database: string = this.database): KnowledgeBase {
    return new KnowledgeBase(this.transport, tenant, database, undefined, this.instant, this.seen);
  }

  /**
   * This knowledge base as it was known at an instant, for `ask`, `query`, `rules` and other reads: a Date, epoch milliseconds,
   * or an ISO 8601 text with an offset. `knownAt(monday).ask(goal, { asOf: lastYear })` says what was known on Monday about last
   * year. Its reads throw VALIDATION_ERROR for an instant in the future, and before the oldest one available, which is in the
   * details; so do operations that use the present state, such as writes.
   */
  knownAt(at: Date | number | string): KnowledgeBase {
    const instant = at instanceof Date ? at.getTime() : at;
    return new KnowledgeBase(this.transport, this.tenant, this.database, this.transactionId, instant, this.seen);
  }

  /**
   * This knowledge base as a view shows it; what is written through it gets labels. `{ view: { trust: "user", team: ["eng"] } }`
   * admits a level and those above, and what belongs to one of the groups or to everybody. Its operations throw
   * VALIDATION_ERROR for levels and groups that are not declared, and FORBIDDEN for more than the API key may see or write.
   * Without one of the two, that of this knowledge base stays.
   */
  viewed(seen: Seen): KnowledgeBase {
    return new KnowledgeBase(this.transport, this.tenant, this.database, this.transactionId, this.instant, { ...this.seen, ...seen });
  }

  #post<T>(path: string, body: object, sent: Sent = {}): Promise<T> {
    return post(this.client, path, body, sent);
  }

  async #page(goal: string, options: GoalOptions, sent: Sent): Promise<Answers> {
    const post = this.client.POST as unknown as (path: string, init: object) => Promise<{ data: []; response: Response }>;
    const { data, response } = await post("/ask", { body: { text: goal, ...options }, ...sent });
    const [unknown, warnings] = noticesOf(response);
    return new Answers(goal, data, unknown, response.headers.get("Link") ?? "", warnings);
  }

  // ---- writes ----

  /** Store the facts and rules of a text such as `parent(ann, bob).`, all or none, or one fact as a predicate with arguments. */
  async tell(text: string): Promise<Schemas["Executed"]>;
  async tell(predicate: string, args: Argument[], attributes?: Omit<Body<"Fact">, "predicate" | "args">): Promise<Schemas["Stored"]>;
  async tell(text: string, args?: Argument[], attributes: object = {}): Promise<Schemas["Executed"] | Schemas["Stored"]> {
    if (args !== undefined) return this.tellMany([{ predicate: text, args: args.map(constantOf), ...attributes }]);
    return this.execute(closed(text));
  }

  /** Store facts, all or none; `discarded` counts those that a conflict strategy has not stored. */
  async tellMany(facts: Schemas["Bulk"]["facts"], options: Omit<Body<"Bulk">, "facts"> = {}): Promise<Schemas["Stored"]> {
    return this.#post("/assert/facts", { facts, ...options });
  }

  /** Store the rules and facts of a text, all or none. */
  async teach(text: string, options: { scope?: string } = {}): Promise<Schemas["Taught"]> {
    const headers = { Prefer: "return=representation" };
    return this.#post("/teach", { text, ...options }, { headers });
  }

  /** Run a text: store its clauses and answer its goals, in order, as a whole or not at all. */
  async execute(command: string, options: { scope?: string } = {}): Promise<Schemas["Executed"]> {
    return this.#post("/execute", { command, ...options });
  }

  /** Retract a fact of both signs; with variables, every fact that matches. */
  async retract(pattern: string, options: { scope?: string; count?: boolean } = {}): Promise<Schemas["Matched"]> {
    return this.#post("/retract/pattern", { text: pattern, ...options });
  }

  /** Remove a rule by its id. */
  async retractRule(id: string, options: { scope?: string } = {}): Promise<string> {
    return this.#post("/retract/rule", { id, ...options }, { parseAs: "text" });
  }

  /** Commit the writes of a function together, or none if it throws. Throws CONFLICT if others changed what it read or wrote. */
  async transaction<T>(work: (inside: KnowledgeBase) => Promise<T>): Promise<T> {
    if (this.transactionId !== undefined) {
      throw new KBError("VALIDATION_ERROR", "a transaction cannot be opened inside another one");
    }
    const id = await this.#post<string>("/tx/begin", {}, { parseAs: "text" });
    const sent: Sent = { params: { path: { id } }, parseAs: "text" };
    let result: T;
    try {
      result = await work(new KnowledgeBase(this.transport, this.tenant, this.database, id, undefined, this.seen));
    } catch (error) {
      // The server ends a transaction that is not ended; an error here would hide the first one.
      await this.#post("/tx/rollback/{id}", {}, sent).catch((failure: unknown) => {
        if (!isKBError(failure)) throw failure;
      });
      throw error;
    }
    await this.#post("/tx/commit/{id}", {}, sent);
    return result;
  }

  // ---- reads ----

  /** Answer a goal, one literal or several, from facts and rules. */
  async ask(goal: string, options: GoalOptions = {}): Promise<Answers> {
    return this.#page(goal, options, {});
  }

  /**
   * Answer several goals from one state: no write comes between two of them. `limit` bounds the answers of each goal, `timeoutMs`
   * the time of all together. `unknownPredicates` and `warnings` of each answer are those of all goals.
   */
  async askMany(goals: string[], options: GoalOptions = {}): Promise<Answers[]> {
    const post = this.client.POST as unknown as (path: string, init: object) => Promise<{ data: [][]; response: Response }>;
    const { data, response } = await post("/ask", { body: { goals, ...options } });
    const [unknown, warnings] = noticesOf(response);
    return data.map((rows, index) => new Answers(goals[index] ?? "", rows, unknown, "", warnings));
  }

  /** The answers of a goal, page by page; throws CONFLICT if facts change in between. */
  async *askPages(goal: string, pageSize: number, options: GoalOptions = {}): AsyncGenerator<Answers> {
    for (let cursor: string | undefined; ; ) {
      const query = cursor === undefined ? { limit: pageSize } : { limit: pageSize, cursor };
      const answers = await this.#page(goal, options, { params: { query } });
      yield answers;
      const next = /<([^>]*)>; rel="next"/.exec(answers.link)?.[1];
      if (next === undefined) return;
      cursor = new URL(next, this.transport.url).searchParams.get("cursor") ?? undefined;
    }
  }

  /** The stored facts that match a pattern, without applying rules. */
  async query(pattern: string, options: Omit<Body<"Query">, "text"> = {}): Promise<Schemas["StoredRow"][]> {
    return this.#post("/query", { text: pattern, ...options });
  }

  /** The answers of a goal of one literal, each with its proof. */
  async prove(goal: string, options: GoalOptions = {}): Promise<Schemas["ProofTree"][]> {
    const body = { text: goal, withProof: true, ...options };
    return this.#post("/ask", body);
  }

  /** The proofs of the answers of a goal as text, each answer above its premises. */
  async explain(goal: string, options: Omit<Body<"Explain">, "text"> = {}): Promise<string> {
    return this.#post("/explain", { text: goal, ...options }, { parseAs: "text" });
  }

  /** Why a goal has no answer: the nearest instances of its rules, and the first premise that is missing. */
  async whyNot(goal: string, options: Omit<Body<"Explain">, "text"> = {}): Promise<Schemas["WhyNot"]> {
    const body = { text: goal, whyNot: true, format: "json" as const, ...options };
    return this.#post("/explain", body);
  }

  /** The smallest changes of stored facts that would make a goal true, or false with `make`; nothing is stored. */
  async howTo(goal: string, options: Omit<Body<"Explain">, "text"> = {}): Promise<Schemas["HowTo"]> {
    const body = { text: goal, howTo: true, format: "json" as const, ...options };
    return this.#post("/explain", body);
  }

  /** What would become true or false if a change were made; nothing is stored. */
  async preview(change: Body<"Preview">): Promise<Schemas["Previewed"]> {
    return this.#post("/preview", change);
  }

  /** The errors and warnings of a text; nothing is stored. */
  async check(text: string): Promise<Schemas["Diagnostics"]> {
    return this.#post("/check", { text });
  }

  /** The rules of a scope; by default of every one. */
  async rules(scope = "*"): Promise<Schemas["Rules"]> {
    return (await this.client.GET("/rules", { params: { query: { scope } } })).data!;
  }

  /** The predicates of a scope; by default of the base. */
  async predicates(scope?: string): Promise<Schemas["Predicates"]> {
    const params = { query: scope === undefined ? {} : { scope } };
    return (await this.client.GET("/predicates", { params })).data!;
  }

  // ---- scopes ----

  /** Copy the facts and own rules of a scope (null: the base) to a new one. */
  async fork(targetScope: string, sourceScope: string | null = null): Promise<Schemas["Forked"]> {
    return this.#post("/scope/fork", { targetScope, sourceScope });
  }

  /** The differences from one scope to another (null: the base). */
  async diff(sourceScope: string | null, targetScope: string | null): Promise<Schemas["Compared"]> {
    return this.#post("/scope/diff", { sourceScope, targetScope });
  }

  /** Merge the facts of a scope into another (null: the base); the strategy decides conflicts. */
  async merge(sourceScope: string | null, targetScope: string | null = null, strategy = "SOURCE_WINS"): Promise<Schemas["Merged"]> {
    return this.#post("/scope/merge", { sourceScope, targetScope, strategy });
  }

  /** Remove a scope with its facts and its own rules. */
  async dropScope(name: string): Promise<Schemas["Dropped"]> {
    return (await this.client.DELETE("/scope/{name}", { params: { path: { name } } })).data!;
  }

  // ---- context windows ----

  /** Select the facts that a model should read, within a budget. */
  async context(options: Body<"Context">): Promise<Schemas["AnyWindow"]> {
    return this.#post("/memory/context", { format: "facts", compat: false, ...options });
  }

  /** Make a new window of a session, and return the changes since its last one. */
  async contextDiff(sessionId: string, options: Omit<Body<"ContextDiff">, "sessionId"> = {}): Promise<Schemas["WindowDiff"]> {
    return this.#post("/context/diff", { sessionId, ...options });
  }

  /** Store the facts and rules of a text or of messages, all or none; a message is a text or a chat message. */
  async ingest(
    text: Body<"Ingest">["text"],
    options: Omit<Body<"Ingest">, "text"> = {},
  ): Promise<Schemas["Ingested"]> {
    return this.#post("/context/ingest", { text, ...options });
  }

  // ---- memory of an agent about a user ----

  /**
   * The memory of an agent about a user: messages in, the text for a prompt out. The user is the tenant of this name, so that
   * nothing passes between users; without `user` it is this tenant. Throws VALIDATION_ERROR for an empty name.
   */
  memory(user: string = this.tenant): UserMemory {
    if (user === "") throw new KBError("VALIDATION_ERROR", "user: must not be empty");
    return new UserMemory(this.open(user));
  }

  // ---- episodes and corrections ----

  /** Store a text that someone said, once by its content; its `id` is what the evidence of facts names. */
  async addEpisode(episode: Body<"Episode">): Promise<Schemas["StoredEpisode"]> {
    return this.#post("/episodes", episode);
  }

  /** Replace a stored fact by another one, which gets its evidence, and keep the reason. */
  async correct(change: Body<"Correct">): Promise<Schemas["Corrected"]> {
    return this.#post("/memory/correct", change);
  }

  /** What asserted, replaced and removed the facts of a predicate, or of a pattern such as `likes(ann, ?x)`; newest first. */
  async factHistory(
    predicate: string,
    options: { scope?: string; order?: "newest" | "oldest"; limit?: number; offset?: number } = {},
  ): Promise<Schemas["History"]> {
    return (await this.client.GET("/facts/history", { params: { query: { predicate, ...options } } })).data!;
  }

  // ---- rule sets ----

  /** Replace the contents of a rule set as one change, or with `dryRun` only compare; throws CONFLICT for another `expectedVersion`. */
  async deploy(name: string, contents: Body<"Deploy">): Promise<Schemas["Deployment"]> {
    const put = this.client.PUT as unknown as (path: string, init: object) => Promise<{ data: Schemas["Deployment"] }>;
    return (await put("/rulesets/{name}", { params: { path: { name } }, body: contents })).data;
  }

  /** Deploy the contents of an earlier version again, by default of the one before. */
  async rollback(name: string, options: Body<"Rollback"> = {}): Promise<Schemas["Deployment"]> {
    return (await this.client.POST("/rulesets/{name}/rollback", { params: { path: { name } }, body: options })).data!;
  }

  // ---- events ----

  /**
   * Yield every change that is committed from now on, or after `since` (the id of an event, or a point in time), until the
   * caller stops or the signal ends it. A lost connection is opened again where it ended.
   */
  async *events(
    options: { predicate?: string; events?: string[]; scope?: string; since?: string | number; signal?: AbortSignal } = {},
  ): AsyncGenerator<KBEvent> {
    const query = new URLSearchParams();
    for (const name of ["predicate", "scope", "since"] as const) {
      if (options[name] !== undefined) query.set(name, String(options[name]));
    }
    if (options.events !== undefined) query.set("events", options.events.join(","));
    yield* this.#stream(`/memory/events${query.size ? `?${query}` : ""}`, options.signal);
  }

  // ---- goals whose answers are kept current ----

  /**
   * Have the server keep the answers of a goal current, also across its restarts. With a `webhook` it sends each change after now
   * to an address that it allows. Subscribing again with the same `id` renews the goal, which ends `ttl` milliseconds after its
   * last use; `follow` with that `id` yields its changes.
   */
  async subscribe(goal: string, options: Omit<Body<"Subscribe">, "goal"> = {}): Promise<Subscribed> {
    return this.#post("/goals/subscribe", { goal, ...options });
  }

  /** The goals that the server keeps current, in the order of their subscription. */
  async subscriptions(): Promise<Schemas["StandingGoal"][]> {
    return (await this.client.GET("/goals")).data!.goals;
  }

  /** End the subscription to a goal, with its webhook; false if there was none. */
  async unsubscribe(id: string): Promise<boolean> {
    return (await this.client.DELETE("/goals/{id}", { params: { path: { id } } })).data!.ended;
  }

  /**
   * Yield the answers of a goal, then each change of them, until the caller stops or the signal ends it. In the first item all
   * answers have appeared; each commit that changes the answers is one item. A lost connection is opened again, also after
   * a restart of the server, and continues after the last item. If the log does not go back so far, the next item has the whole
   * difference. With an `id` the server keeps the goal across restarts.
   */
  async *follow(
    goal: string,
    options: { scope?: string; id?: string; ttl?: number; signal?: AbortSignal } = {},
  ): AsyncGenerator<AnswersChanged> {
    const { signal, ...fields } = options;
    let known = new Map<string, GoalAnswer>();
    let since: string | undefined;
    const difference = (now: Subscribed): AnswersChanged => {
      const before = known;
      known = new Map(now.answers.map((answer) => [keyOf(answer), answer]));
      return {
        appeared: now.answers.filter((answer) => !before.has(keyOf(answer))),
        disappeared: [...before].filter(([key]) => !known.has(key)).map(([, answer]) => answer),
        commitSeq: now.commitSeq,
        timestamp: now.timestamp,
      };
    };
    const stop = new AbortController().signal;
    for (let failures = 0; signal?.aborted !== true; ) {
      let first: Subscribed;
      try {
        first = await this.#post("/goals/subscribe", { goal, ...fields, durable: fields.id !== undefined });
      } catch (error) {
        const delay = since !== undefined && isLost(error) ? this.transport.streamDelay(failures, true) : undefined;
        if (delay === undefined) throw error;
        failures += 1;
        await pause(delay, signal ?? stop).catch(() => undefined); // the signal has ended the wait
        continue;
      }
      failures = 0;
      if (since === undefined) {
        since = first.eventId;
        yield difference(first);
      }
      const path = `/goals/${encodeURIComponent(first.id)}/events?since=${encodeURIComponent(since)}`;
      try {
        for await (const { data } of this.#stream(path, signal, true)) {
          if ("code" in data) throw new KBError(data["code"] as ErrorCode, data["message"] as string);
          const next = "answers" in data ? difference(data as unknown as Subscribed) : (data as unknown as AnswersChanged);
          const { appeared, disappeared, commitSeq, timestamp } = next;
          since = data["eventId"] as string;
          for (const answer of disappeared) known.delete(keyOf(answer));
          for (const answer of appeared) known.set(keyOf(answer), answer);
          if (appeared.length || disappeared.length) yield { appeared, disappeared, commitSeq, timestamp };
        }
        return;
      } catch (error) {
        if (!isKBError(error, "NOT_FOUND")) throw error; // the goal has ended, but its event ids name states of the log
      }
    }
  }

  /** Yield the events of a stream without end; `wasOpen` says that the server has answered before. */
  async *#stream(path: string, ending?: AbortSignal, wasOpen = false): AsyncGenerator<KBEvent> {
    const stop = new AbortController();
    const signal = ending === undefined ? stop.signal : AbortSignal.any([ending, stop.signal]);
    let last = "";
    let failures = 0;
    if (this.instant !== undefined) {
      throw new KBError("VALIDATION_ERROR", "knownAt is not available here: events come from the present state");
    }
    try {
      for (;;) {
        const silence = new AbortController();
        let timer = setTimeout(() => silence.abort(), this.transport.eventTimeout);
        try {
          const headers = {
            ...this.transport.headers(this.tenant, this.database, undefined, this.seen),
            Accept: "text/event-stream",
            ...(last ? { "Last-Event-ID": last } : {}),
          };
          const response = await this.transport.stream(path, headers, AbortSignal.any([signal, silence.signal]));
          if (response.body === null) return;
          wasOpen = true;
          let isGreeting = true;
          for await (const { id, event } of messagesOf(response.body)) {
            clearTimeout(timer);
            timer = setTimeout(() => silence.abort(), this.transport.eventTimeout);
            if (!isGreeting) failures = 0;
            isGreeting = false;
            last = event?.id || id || last;
            if (event !== undefined) yield event;
          }
          throw new KBError("CONNECTION_FAILED", `${this.transport.url} ended the stream of events`);
        } catch (error) {
          if (signal.aborted) return;
          const isAnswer = isKBError(error) || error instanceof SyntaxError; // an event that is no JSON
          const lost = isAnswer ? error : new KBError("CONNECTION_FAILED", String(error));
          const delay = isLost(lost) ? this.transport.streamDelay(failures, wasOpen) : undefined;
          if (delay === undefined) throw lost;
          failures += 1;
          await pause(delay, signal).catch(() => undefined); // the signal has ended the wait
        } finally {
          clearTimeout(timer);
        }
      }
    } finally {
      stop.abort();
    }
  }
}

/** Connect to a server; nothing is sent until the first call. Throws KBError if the address is none. */
export function connect(url: string, options: Options = {}): KnowledgeBase {
  return new KnowledgeBase(new Transport(url, options), options.tenant ?? "default", options.database ?? "default");
}

/** True for an error after which a stream of events is opened again. */
function isLost(error: unknown): boolean {
  return isKBError(error, "CONNECTION_FAILED", "TIMED_OUT", "NOT_READY", "RATE_LIMITED");
}

function keyOf(answer: GoalAnswer): string {
  return JSON.stringify(answer.args ?? Object.values(answer.bindings ?? {}));
}

function closed(text: string): string {
  return /\.\s*$/.test(text) ? text : `${text}.`;
}

/** Memory of an agent about one user; facts that are stored in its tenant in other ways belong to it too. */
export class UserMemory extends MemoryOperations {
  constructor(readonly kb: KnowledgeBase) {
    super();
  }

  get client(): Client<paths> {
    return this.kb.client;
  }

  /**
   * Store messages, and the facts that are read in them. A message is a text of the user or a chat message with `role`,
   * `content` and optionally `name`, `at` and `id`. What is stored already is not stored again.
   */
  async add(
    messages: Body<"MemoryAdd">["messages"],
    options: Omit<Body<"MemoryAdd">, "messages"> = {},
  ): Promise<Schemas["AddedMessages"]> {
    return post(this.client, "/memory/add", { messages, ...options });
  }

  /** Store a new value and end the older one: that of the `@key` of the predicate, the opposite, or the fact `replaces`. */
  async update(
    fact: Body<"MemoryUpdate">["fact"],
    options: Omit<Body<"MemoryUpdate">, "fact"> = {},
  ): Promise<{ asserted: number; updated: number; warnings?: string[] }> {
    return post(this.client, "/memory/update", { fact, ...options });
  }
}
