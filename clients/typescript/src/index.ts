export { Answers, type Answer } from "./answers.js";
export { connect, KnowledgeBase, UserMemory, type AnswersChanged, type Argument, type GoalAnswer, type GoalOptions } from "./client.js";
export { ERROR_CODES, isKBError, KBError, type ErrorCode, type TextError } from "./errors.js";
export type { KBEvent } from "./events.js";
export type { components, paths } from "./schema.js";
export type { Options, Retries } from "./transport.js";
