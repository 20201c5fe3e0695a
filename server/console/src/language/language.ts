// The rule language for CodeMirror: highlighting, comments, brackets.
import { LRLanguage, LanguageSupport, indentNodeProp, continuedIndent } from "@codemirror/language";
import { styleTags, tags } from "@lezer/highlight";

import { parser } from "./kb.grammar.js";

const highlighted = parser.configure({
  props: [
    styleTags({
      "PredicateName/Word PredicateName/String": tags.function(tags.variableName),
      "Name/Word Name/String": tags.labelName,
      "Key/Word": tags.propertyName,
      Variable: tags.variableName,
      Anonymous: tags.variableName,
      Word: tags.name,
      Number: tags.number,
      String: tags.string,
      "Not Div Mod": tags.keyword,
      "Arrow GoalStart": tags.definitionKeyword,
      "Comparison Plus Minus Star Slash Tilde": tags.operator,
      "LineComment BlockComment": tags.comment,
      End: tags.punctuation,
    }),
    indentNodeProp.add({ Clause: continuedIndent(), Goal: continuedIndent() }),
  ],
});

export const ruleLanguage = LRLanguage.define({
  name: "kb",
  parser: highlighted,
  languageData: {
    commentTokens: { line: "%", block: { open: "/*", close: "*/" } },
    closeBrackets: { brackets: ["(", "[", '"', "'"] },
  },
});

export const ruleLanguageSupport = new LanguageSupport(ruleLanguage);
