"use strict";
// Markdown with TeX as elements. No text becomes HTML: a token of the parser is an element of a
// known name, or it is text.
(() => {
  const { addMath, formula } = ttsReport;
  const MOST = 100_000; // characters; what is longer is shown as it is
  const FORMULAS = 500; // of one text
  const LINKS = new Set(["http:", "https:", "mailto:"]);
  const NAMES = new Set([
    "p", "ul", "ol", "li", "blockquote", "em", "strong", "s", "table", "thead", "tbody", "tr", "th", "td",
  ]);
  const parser = markdownit({ html: false, breaks: true });
  addMath(parser);

  function rendered(text) {
    const whole = document.createDocumentFragment();
    if (text.length > MOST) {
      whole.append(text);
    } else {
      build(parser.parse(text, {}), whole, { formulas: FORMULAS });
    }
    return whole;
  }

  // The same without paragraphs.
  function renderedLine(text) {
    const whole = document.createDocumentFragment();
    build(parser.parseInline(text, {}), whole, { formulas: FORMULAS });
    return whole;
  }

  // A formula, or a text that may hold some.
  function renderedAnswer(answer) {
    const looksLikeTex = /[\\^_{]/.test(answer) && !answer.includes("$");
    return looksLikeTex ? formula(answer, false) : renderedLine(answer);
  }

  function build(tokens, place, left) {
    const open = [place];
    for (const token of tokens) {
      const into = open.at(-1);
      if (token.nesting > 0) open.push(token.hidden ? into : opened(token, into));
      else if (token.nesting < 0) open.pop();
      else if (token.type === "inline") build(token.children, into, left);
      else into.append(leaf(token, left));
    }
  }

  function opened(token, into) {
    const made = token.type === "link_open" ? link(token.attrGet("href")) : document.createElement(nameOf(token));
    const [, align] = /^text-align:(left|right|center)$/.exec(token.attrGet("style") ?? "") ?? [];
    if (align) made.className = `align-${align}`;
    if (token.tag === "ol") made.start = Number(token.attrGet("start") ?? 1);
    if (token.tag !== "table") return into.appendChild(made);
    const scroll = into.appendChild(document.createElement("div"));
    scroll.className = "scroll";
    scroll.tabIndex = 0;
    scroll.setAttribute("role", "region");
    scroll.setAttribute("aria-label", "Table");
    return scroll.appendChild(made);
  }

  // Headings are below the one of their turn.
  function nameOf({ tag }) {
    if (/^h[1-6]$/.test(tag)) return `h${Math.min(6, Number(tag[1]) + 2)}`;
    return NAMES.has(tag) ? tag : "span";
  }

  function link(target) {
    const made = document.createElement("a");
    made.href = target; // as the browser reads it
    if (!LINKS.has(made.protocol) || !/^[a-z]+:/i.test(target)) return document.createElement("span");
    Object.assign(made, { target: "_blank", rel: "noopener noreferrer nofollow" });
    return made;
  }

  function leaf(token, left) {
    if (token.type === "math") return left.formulas-- > 0 ? formula(token.content, token.meta.display) : token.content;
    if (token.type === "softbreak" || token.type === "hardbreak") return document.createElement("br");
    if (token.type === "hr") return document.createElement("hr");
    if (token.type === "image") { // from another host: no more than a link to it
      const made = link(token.attrGet("src"));
      made.textContent = token.content || token.attrGet("src");
      return made;
    }
    if (!["code_inline", "code_block", "fence"].includes(token.type)) return token.content;
    const code = document.createElement("code");
    code.textContent = token.content;
    if (token.type === "code_inline") return code;
    const block = document.createElement("pre");
    block.append(code);
    return block;
  }

  Object.assign(ttsReport, { rendered, renderedLine, renderedAnswer });
})();
