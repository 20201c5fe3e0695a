// A text of one or several goals, or of a question in words.
import type { TextError } from "../api/client";

/** A goal of a text, without `?-` and its final dot, and the line and column where it begins, both from 1. */
export interface GoalText {
  text: string;
  line: number;
  column: number;
}

const STRING = /"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'/y;
const COMMENT = /(?:%|#|\/\/)[^\n]*/y;
/** What a line ends or begins with when its goal goes on in the next line. */
const OPEN_END = /(?:[,=<>+*/(-]|\bnot|\?-)\s*$/;
const OPEN_START = /^\s*[,=<>+*/!)]/;

/** Return the goals of a text: each ends with a dot, or with its line. */
export function goalsOf(text: string): GoalText[] {
  const goals: GoalText[] = [];
  let start = 0;
  let depth = 0;
  let plain = "";
  const finish = (end: number) => {
    const goal = goalOf(text, start, end);
    if (goal !== null && plain.trim() !== "") goals.push(goal);
    plain = "";
  };
  for (let at = 0; at < text.length; ) {
    const comment = matchAt(COMMENT, text, at);
    const string = matchAt(STRING, text, at);
    const character = text[at] ?? "";
    if (comment !== "" && /(?:^|\s)$/.test(text.slice(0, at))) {
      // A comment before a goal is no part of it.
      at += comment.length;
      if (plain.trim() === "") start = at;
      continue;
    }
    if (string !== "") {
      plain += string;
      at += string.length;
      continue;
    }
    if (character === "(") depth += 1;
    if (character === ")") depth = Math.max(0, depth - 1);
    const isDot = character === "." && !/\d/.test(text[at + 1] ?? "");
    const isBreak = character === "\n" && depth === 0 && !OPEN_END.test(plain) && !OPEN_START.test(text.slice(at + 1));
    if (isDot || isBreak) {
      finish(at);
      start = at + 1;
      depth = 0;
    } else plain += character;
    at += 1;
  }
  finish(text.length);
  return goals;
}

function matchAt(pattern: RegExp, text: string, at: number): string {
  pattern.lastIndex = at;
  return pattern.exec(text)?.[0] ?? "";
}

function goalOf(text: string, start: number, end: number): GoalText | null {
  const whole = text.slice(start, end);
  const from = start + (/^\s*(?:\?-)?\s*/.exec(whole)?.[0].length ?? 0);
  const goal = text.slice(from, end).trim();
  if (goal === "") return null;
  const before = text.slice(0, from).split("\n");
  return { text: goal, line: before.length, column: (before.at(-1)?.length ?? 0) + 1 };
}

/** Return whether a text is a question in words, such as "Who is the parent of bob?", and no goal. */
export function isQuestion(text: string): boolean {
  const bare = text.trim();
  if (/[():=<>~"]|\?-|\?\w/.test(bare) || bare.includes("\n")) return false;
  const words = bare.split(/\s+/).length;
  return bare.endsWith("?") ? words > 1 : words > 2 && !bare.includes(",");
}

/** Return the text with which the server checks several goals at once, and the function that gives its mistakes their places in the text of the goals. */
export function programOf(goals: readonly GoalText[]): { text: string; place: (error: TextError) => TextError } {
  const begins: number[] = [];
  let lines = 1;
  for (const { text } of goals) {
    begins.push(lines);
    lines += text.split("\n").length;
  }
  const placed = (line: number, column: number): [number, number] => {
    const index = Math.max(0, begins.filter((begin) => begin <= line).length - 1);
    const [goal, begin] = [goals[index], begins[index]];
    if (goal === undefined || begin === undefined) return [line, column];
    return line === begin ? [goal.line, goal.column + Math.max(0, column - 1 - "?- ".length)] : [goal.line + line - begin, column];
  };
  return {
    text: goals.map(({ text }) => `?- ${text}.`).join("\n"),
    place: (error) => {
      const [line, column] = placed(error.line, error.column);
      const [endLine, endColumn] = placed(error.endLine ?? error.line, error.endColumn ?? error.column + 1);
      return { ...error, line, column, endLine, endColumn };
    },
  };
}
