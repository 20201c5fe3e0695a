// A text editor for the rule language. It lives in a shadow root: there CodeMirror adds its styles as
// constructed style sheets, which the content security policy of the page permits.
import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap, type CompletionContext, type CompletionResult } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { bracketMatching, HighlightStyle, syntaxHighlighting, syntaxTree } from "@codemirror/language";
import { lintGutter, linter, type Diagnostic } from "@codemirror/lint";
import { EditorState, Prec } from "@codemirror/state";
import { EditorView, keymap, lineNumbers, placeholder as placeholderText, tooltips } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { useEffect, useRef } from "react";
import { flushSync } from "react-dom";

import type { TextError } from "../api/client";
import { ruleLanguageSupport } from "../language/language";

/** A predicate offered by completion. */
export interface KnownPredicate {
  predicate: string;
  arity: number;
  factCount?: number;
  hasRules?: boolean;
  /** Names of the arguments of a declared input, and what a fact of it means. */
  args?: readonly string[];
  gloss?: string;
}

interface Properties {
  label: string;
  value: string;
  onChange: (text: string) => void;
  /** Called for Ctrl+Enter (Cmd+Enter on a Mac). */
  onRun?: () => void;
  /** Return the mistakes in a text; called when typing pauses. */
  check?: (text: string) => Promise<(TextError & { severity?: string })[]>;
  predicates?: KnownPredicate[];
  placeholder?: string;
  /** Show line numbers, for texts of many lines. */
  numbered?: boolean;
  /** Take the focus when the editor appears, unless the reader has moved it elsewhere by then. */
  focused?: boolean;
  /** The element that had the focus when the editor began to load. */
  focusBefore?: Element | null;
}

const colors = HighlightStyle.define([
  { tag: tags.function(tags.variableName), color: "var(--code-predicate)" },
  { tag: tags.variableName, color: "var(--code-variable)" },
  { tag: tags.labelName, color: "var(--code-label)" },
  { tag: tags.propertyName, color: "var(--code-label)" },
  { tag: [tags.string, tags.number], color: "var(--code-literal)" },
  { tag: [tags.keyword, tags.definitionKeyword], color: "var(--code-keyword)", fontWeight: "600" },
  { tag: tags.comment, color: "var(--soft)", fontStyle: "italic" },
]);

// The underlines of the lint package are data: images, which the content security policy forbids.
const wavy = (color: string) => ({ backgroundImage: "none", textDecoration: `underline wavy ${color}`, textDecorationSkipInk: "none" });
const theme = EditorView.theme({
  "&": { color: "var(--text)", backgroundColor: "var(--card)", fontSize: "0.9375rem" },
  "&.cm-focused": { outline: "none" },
  "& ~ .keys": { display: "none", margin: "0", padding: "0.1rem 0.75rem 0.3rem", fontSize: "0.75rem", color: "var(--soft)" },
  "&.cm-focused ~ .keys": { display: "block" },
  ".cm-content": { fontFamily: "var(--mono)", caretColor: "var(--text)", padding: "0.5rem 0" },
  ".cm-line": { padding: "0 0.75rem" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.5", maxHeight: "22rem" },
  ".cm-gutters": { backgroundColor: "var(--card)", color: "var(--soft)", border: "none" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--selection)" },
  ".cm-placeholder": { color: "var(--soft)" },
  ".cm-lintRange-error": wavy("var(--bad)"),
  ".cm-lintRange-warning": wavy("var(--warn)"),
  ".cm-lint-marker": { content: "none", width: "0.6rem", height: "0.6rem", borderRadius: "50%" },
  ".cm-lint-marker-error": { content: "none", backgroundColor: "var(--bad)" },
  ".cm-lint-marker-warning": { content: "none", backgroundColor: "var(--warn)" },
  ".cm-tooltip": { backgroundColor: "var(--card)", border: "1px solid var(--line)", color: "var(--text)", borderRadius: "6px" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--on-accent)" },
  ".cm-diagnostic": { fontFamily: "inherit" },
  "&.cm-focused .cm-matchingBracket": { backgroundColor: "var(--selection)" },
});

export function CodeEditor(properties: Properties) {
  const { label, value, numbered = false, focused = false } = properties;
  const host = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView | null>(null);
  const latest = useRef(properties);
  latest.current = properties;
  // Texts passed to `onChange` that have not come back as `value` yet: typing is faster than rendering, and a value
  // that is only late must not replace what was typed since.
  const reported = useRef<string[]>([]);

  useEffect(() => {
    const element = host.current;
    if (element === null) return;
    const root = element.shadowRoot ?? element.attachShadow({ mode: "open", delegatesFocus: true });
    const run = (editor: EditorView) => {
      if (latest.current.onRun === undefined) return false;
      // What was typed just before may not be rendered yet, and `onRun` would take the text of before.
      const text = editor.state.doc.toString();
      if (text !== latest.current.value) flushSync(() => latest.current.onChange(text));
      latest.current.onRun?.();
      return true;
    };
    const editor = new EditorView({
      root,
      parent: root,
      state: EditorState.create({
        doc: latest.current.value,
        extensions: [
          Prec.highest(keymap.of([{ key: "Mod-Enter", run }])),
          history(),
          bracketMatching(),
          closeBrackets(),
          ruleLanguageSupport,
          syntaxHighlighting(colors),
          theme,
          tooltips({ parent: root as unknown as HTMLElement }),
          EditorView.domEventHandlers({ beforeinput: replaceSelected }),
          EditorView.lineWrapping,
          EditorView.contentAttributes.of({ "aria-label": label, "aria-describedby": "keys" }),
          placeholderText(latest.current.placeholder ?? ""),
          autocompletion({ override: [(context) => complete(context, latest.current.predicates ?? [])] }),
          linter((editor) => diagnose(editor, latest.current.check), { delay: 300 }),
          numbered ? [lineNumbers(), lintGutter()] : [],
          // Tab is not bound: it leaves the editor, so that the page works by keyboard alone.
          keymap.of([...closeBracketsKeymap, ...defaultKeymap, ...historyKeymap, ...completionKeymap]),
          EditorView.updateListener.of((update) => {
            if (!update.docChanged) return;
            const text = update.state.doc.toString();
            reported.current.push(text);
            latest.current.onChange(text);
          }),
        ],
      }),
    });
    const keys = document.createElement("p");
    keys.id = "keys";
    keys.className = "keys";
    keys.textContent = `${latest.current.onRun === undefined ? "" : "Ctrl+Enter: run. "}Ctrl+Space: suggestions. Esc, then Tab: next field.`;
    root.append(keys);
    view.current = editor;
    if (focused && [null, document.body, latest.current.focusBefore].includes(document.activeElement)) editor.focus();
    return () => {
      editor.destroy();
      keys.remove();
      view.current = null;
    };
  }, [label, numbered, focused]);

  useEffect(() => {
    const editor = view.current;
    const position = reported.current.lastIndexOf(value);
    reported.current.splice(0, position + 1);
    if (editor === null || position >= 0 || editor.state.doc.toString() === value) return;
    editor.dispatch({ changes: { from: 0, to: editor.state.doc.length, insert: value } });
    reported.current = [];
  }, [value]);

  return <div className="editor" ref={host} />;
}

/** Replace selected text here: the browser would copy its colours to a style attribute, which the content security policy forbids. */
function replaceSelected(event: InputEvent, editor: EditorView): boolean {
  const { from, to, empty } = editor.state.selection.main;
  const text = event.data;
  if (event.inputType !== "insertText" || text === null || empty || editor.composing) return false;
  const insertion = () => editor.state.update(editor.state.replaceSelection(text), { userEvent: "input.type", scrollIntoView: true });
  const isHandled = editor.state.facet(EditorView.inputHandler).some((handle) => handle(editor, from, to, text, insertion));
  if (!isHandled) editor.dispatch(insertion());
  event.preventDefault();
  return true;
}

function complete(context: CompletionContext, predicates: KnownPredicate[]): CompletionResult | null {
  const variable = context.matchBefore(/\?\w*/);
  if (variable !== null) {
    const names = new Set<string>();
    syntaxTree(context.state).iterate({
      enter: (node) => {
        if (node.name === "Variable" && node.to !== context.pos) names.add(context.state.sliceDoc(node.from, node.to));
      },
    });
    return { from: variable.from, options: [...names].map((name) => ({ label: name, type: "variable" })), validFor: /^\?\w*$/ };
  }
  const word = context.matchBefore(/[\p{L}][\p{L}\p{N}_:-]*/u);
  if (word === null && !context.explicit) return null;
  const inside = syntaxTree(context.state).resolveInner(context.pos, -1);
  for (let node: typeof inside | null = inside; node !== null; node = node.parent) {
    if (node.name === "Arguments" && !context.explicit) return null;
  }
  return {
    from: word?.from ?? context.pos,
    options: predicates.map(({ predicate, arity, factCount = 0, hasRules = false, args, gloss }) => ({
      label: predicate,
      detail: args === undefined || arity === 0 ? `/${arity}` : `(${args.join(", ")})`,
      info: gloss ?? (hasRules ? "defined by rules" : `${factCount.toLocaleString("en")} ${factCount === 1 ? "fact" : "facts"}`),
      type: "function",
      apply: arity === 0 ? predicate : `${predicate}(`,
    })),
    validFor: /^[\p{L}][\p{L}\p{N}_:-]*$/u,
  };
}

async function diagnose(editor: EditorView, check: Properties["check"]): Promise<Diagnostic[]> {
  const document = editor.state.doc;
  if (check === undefined || document.toString().trim() === "") return [];
  const errors = await check(document.toString());
  const position = (line: number, column: number) => {
    if (line > document.lines) return document.length;
    const { from, to } = document.line(Math.max(line, 1));
    return Math.min(from + Math.max(column - 1, 0), to);
  };
  return errors.map((error) => {
    const from = position(error.line, error.column);
    const to = Math.max(position(error.endLine ?? error.line, error.endColumn ?? error.column + 1), from);
    const hint = error.hint == null || error.hint === "" ? "" : `\n${error.hint}`;
    return { from, to, severity: error.severity === "warning" ? "warning" : "error", message: `${error.message}${hint}` };
  });
}
