// Written by docs/generate.py from the operations of the server.
import type { Client } from "openapi-fetch";

import { post, type Body, type Schemas } from "./requests.js";
import type { paths } from "./schema.js";

/** Paths of POST requests that change nothing. */
export const READS: ReadonlySet<string> = new Set([
  "/aggregate", "/ask", "/check", "/context/diff", "/context/session/clear", "/context/summary", "/explain",
  "/goals/subscribe", "/goals/suggest", "/infer", "/memory/context", "/memory/query/salient", "/memory/query/temporal",
  "/memory/recall", "/memory/search", "/neighbours", "/preview", "/query", "/receipt", "/scope/diff", "/synthesize",
]);

/** Paths of POST requests whose body may have `knownAt`, and of GET requests whose query may have it. */
export const HISTORIC: Readonly<Record<string, ReadonlySet<string>>> = {
  POST: new Set([
    "/aggregate", "/ask", "/context/summary", "/explain", "/goals/suggest", "/infer", "/memory/context",
    "/memory/query/salient", "/memory/query/temporal", "/memory/recall", "/neighbours", "/query", "/scope/diff",
  ]),
  GET: new Set([
    "/episodes", "/episodes/{id}", "/predicates", "/rules", "/rulesets", "/scopes",
  ]),
};

/** Operations on a knowledge base that only translate. */
export abstract class Operations {
  abstract readonly client: Client<paths>;

  /** Delete the last context window of a session. */
  async clearSession(session: string): Promise<void> {
    await post(this.client, "/context/session/clear", { sessionId: session }, { parseAs: "text" });
  }

  /** Replace groups of similar facts by summaries. */
  async consolidate(options: Body<"Consolidate"> = {}): Promise<Schemas["Consolidated"]> {
    return post(this.client, "/memory/consolidate", options);
  }

  /** Return a summary of the knowledge base. */
  async contextSummary(options: Body<"ContextSummary"> = {}): Promise<Schemas["Summary"]> {
    return post(this.client, "/context/summary", options);
  }

  /** Evict expired facts and facts with low salience. */
  async decay(options: Body<"Decay"> = {}): Promise<Schemas["Decayed"]> {
    return post(this.client, "/memory/decay", options);
  }

  /** Return an episode with the stored facts whose evidence names it. */
  async episode(id: string, options: { limit?: number; offset?: number } = {}): Promise<Schemas["EpisodeWithFacts"]> {
    return (await this.client.GET("/episodes/{id}", { params: { path: { id }, query: options } })).data!;
  }

  /** List the episodes in the order in which they were stored. */
  async episodes(
    options: { session?: string; speaker?: string; limit?: number; offset?: number } = {},
  ): Promise<Schemas["EpisodeList"]> {
    return (await this.client.GET("/episodes", { params: { query: options } })).data!;
  }

  /**
   * Find the goals that a question in words can mean, and answer the best one. The words of the question are compared with
   * those of the predicates, and its names with the constants of the facts. A goal can be a chain of several predicates.
   */
  async goalsFor(question: string, options: Omit<Body<"GoalsFor">, "question"> = {}): Promise<Schemas["GoalSuggestions"]> {
    return post(this.client, "/goals/suggest", { question, ...options });
  }

  /**
   * Return the stored facts that have a constant in any argument; no rules are applied. The facts of all predicates and
   * positions are taken in turn up to `limit`, so that a page shows every predicate before it shows many facts of one.
   * `predicates` has the number of all facts that contain the constant, of which `facts` is one page.
   */
  async neighbours(
    constant: string | number | boolean,
    options: Omit<Body<"Neighbours">, "constant"> = {},
  ): Promise<Schemas["Neighbourhood"]> {
    return post(this.client, "/neighbours", { constant, ...options });
  }

  /**
   * Remove facts and episodes, and their text from the log and the snapshots. Rules that mention the subject are listed, not
   * removed. With `dryRun` nothing changes. `similar` lists names of which the subject is a part, which stay. While `erased`
   * is false, `GET /memory/purges` says when the text is gone.
   */
  async purge(options: Body<"Purge"> = {}): Promise<Schemas["Purged"]> {
    return post(this.client, "/memory/purge", options);
  }

  /** List the purges, and whether their text is gone from the log and the snapshots. */
  async purges(): Promise<Schemas["PurgeList"]["purges"]> {
    return (await this.client.GET("/memory/purges")).data!.purges;
  }

  /** Return the contents of a rule set in the version that is in force, as statements. */
  async ruleSet(name: string, options: { scope?: string } = {}): Promise<Schemas["RuleSetContents"]> {
    return (await this.client.GET("/rulesets/{name}", { params: { path: { name }, query: options } })).data!;
  }

  /** Compare two versions of a rule set; version 0 is empty. */
  async ruleSetDiff(
    name: string,
    before: number,
    after: number,
    options: { scope?: string } = {},
  ): Promise<Schemas["RuleSetDiff"]> {
    const query = { from: before, to: after, ...options };
    return (await this.client.GET("/rulesets/{name}/diff", { params: { path: { name }, query } })).data!;
  }

  /** List the kept versions of a rule set, the newest first. */
  async ruleSetVersions(name: string, options: { scope?: string } = {}): Promise<Schemas["RuleSetVersions"]["versions"]> {
    return (await this.client.GET("/rulesets/{name}/versions", { params: { path: { name }, query: options } })).data!.versions;
  }

  /** List the rule sets of a tenant, with the version that is in force. */
  async ruleSets(options: { scope?: string } = {}): Promise<Schemas["RuleSets"]["ruleSets"]> {
    return (await this.client.GET("/rulesets", { params: { query: options } })).data!.ruleSets;
  }

  /** List the scopes of the tenant. */
  async scopes(): Promise<Schemas["Scopes"]["scopes"]> {
    return (await this.client.GET("/scopes")).data!.scopes;
  }

  /**
   * Return the slowest goals of the tenant in the last hour. At most 20 distinct goals that took 10 ms or more, slowest
   * first, as they were asked. Every node has a list of its own, in memory.
   */
  async slowGoals(): Promise<Schemas["SlowGoals"]["goals"]> {
    return (await this.client.GET("/goals/slow")).data!.goals;
  }

  /** Answer a question in natural language from the knowledge base. */
  async synthesize(question: string, options: Omit<Body<"Synthesize">, "question"> = {}): Promise<Schemas["Synthesized"]> {
    return post(this.client, "/synthesize", { question, ...options });
  }

  /**
   * Undo one committed change. Facts, rules and scopes become what they were before it. If later changes concern the same
   * facts or rules, nothing is changed, and the error names them. A change that is no longer in the log cannot be undone.
   */
  async undo(options: Body<"Undo"> = {}): Promise<Schemas["Undone"]> {
    return post(this.client, "/memory/undo", options);
  }
}

/** Operations on the memory about a user that only translate. */
export abstract class MemoryOperations {
  abstract readonly client: Client<paths>;

  /** Return the facts that are valid now, with the passages that they are based on. Texts of messages are left out. */
  async facts(options: { limit?: number; offset?: number } = {}): Promise<Schemas["BelievedFacts"]> {
    return (await this.client.GET("/memory/facts", { params: { query: options } })).data!;
  }

  /**
   * Remove facts, the texts that they are based on, and what nothing else supports. Only says what would go, unless `dryRun`
   * is false. Removal is for good, also from the log.
   */
  async forget(about: string, options: Omit<Body<"MemoryForget">, "about"> = {}): Promise<Schemas["ForgottenMemories"]> {
    return post(this.client, "/memory/forget", { about, ...options });
  }

  /** Return when facts were stored, changed and removed, the newest event first. */
  async history(about: string, options: { limit?: number; offset?: number } = {}): Promise<Schemas["History"]> {
    const query = { about, ...options };
    return (await this.client.GET("/memory/history", { params: { query } })).data!;
  }

  /**
   * Return what is known about a question, as text for a prompt, with its sources. Standing instructions of the user come
   * first.
   */
  async search(question: string, options: Omit<Body<"MemorySearch">, "question"> = {}): Promise<Schemas["FoundMemories"]> {
    return post(this.client, "/memory/search", { question, ...options });
  }
}
