"use strict";
// TeX: where it stands in a text, and how it is drawn. What cannot be drawn stays text.
(() => {
  const MOST = 4000; // characters of a formula
  const LINES = 200; // of a formula
  const DEPTH = 150; // of the elements that a formula is drawn with
  const INLINE = [["$$", "$$", true], ["\\[", "\\]", true], ["\\(", "\\)", false], ["$", "$", false]];
  const BLOCKS = [["$$", "$$"], ["\\[", "\\]"]];
  const BEGIN = /^\\begin\{(equation|align|aligned|alignat|gather|gathered|cases|array|[pbvBV]?matrix)(\*?)\}/;

  // Teaches a parser of Markdown the tokens `math`.
  function addMath(parser) {
    parser.inline.ruler.before("escape", "math", inline);
    parser.block.ruler.before("fence", "math", block, { alt: ["paragraph", "reference", "blockquote", "list"] });
  }

  function formula(tex, display) {
    const place = document.createElement(display ? "div" : "span");
    place.className = "math";
    try {
      if (tex.length > MOST) throw new RangeError("too long");
      katex.render(tex, place, { displayMode: display, trust: false, strict: "ignore", maxExpand: 300, maxSize: 20 });
      if (depth(place) > DEPTH) throw new RangeError("too deep");
    } catch { // whatever it was: of a model's text anything may come
      const source = document.createElement("code");
      source.textContent = tex;
      place.replaceChildren(source);
    }
    return place;
  }

  function inline(state, silent) {
    const { src, pos } = state;
    const found = src[pos] === "$" || src[pos] === "\\" ? delimited(state) ?? boxed(src, pos) : null;
    if (!found) return false;
    if (!silent) {
      const token = state.push("math", "", 0);
      token.content = found.tex;
      token.meta = { display: found.display };
    }
    state.pos = found.end;
    return true;
  }

  function delimited(state) {
    const { src, pos } = state;
    state.unclosed ??= new Set(); // or a text of openings would be read to its end for each of them
    for (const [open, close, display] of INLINE) {
      if (!src.startsWith(open, pos) || state.unclosed.has(close)) continue;
      const at = closing(src, pos + open.length, close);
      if (at < 0) state.unclosed.add(close);
      const tex = src.slice(pos + open.length, at);
      if (at < 0 || !tex.trim()) continue;
      const amount = /^\s|\s$/.test(tex) || /\d/.test(src[at + 1] ?? ""); // as in "$5 and $10"
      if (open === "$" && amount) continue;
      return { tex, display, end: at + close.length };
    }
    return null;
  }

  // Where `close` stands next without a backslash before it.
  function closing(src, from, close) {
    for (let at = src.indexOf(close, from); at >= 0; at = src.indexOf(close, at + 1)) {
      if (src[at - 1] !== "\\" || src[at - 2] === "\\") return at;
    }
    return -1;
  }

  // A box that a model writes without dollars.
  function boxed(src, pos) {
    if (!src.startsWith("\\boxed{", pos)) return null;
    let open = 0;
    for (let at = pos + 6; at < Math.min(src.length, pos + MOST); at++) {
      if (src[at] === "{") open++;
      if (src[at] === "}" && --open === 0) return { tex: src.slice(pos, at + 1), display: false, end: at + 1 };
    }
    return null;
  }

  function block(state, first, last, silent) {
    const start = state.bMarks[first] + state.tShift[first];
    const begun = state.src.slice(start, state.eMarks[first]);
    const environment = BEGIN.exec(begun);
    const [open, close] = environment
      ? ["", `\\end{${environment[1]}${environment[2]}}`]
      : BLOCKS.find(([each]) => begun.startsWith(each)) ?? [null];
    if (open === null) return false;
    for (let line = first; line < Math.min(last, first + LINES); line++) {
      if (line > first && state.sCount[line] < state.blkIndent && !state.isEmpty(line)) return false;
      const from = line === first ? start + open.length : state.bMarks[line];
      const text = state.src.slice(from, state.eMarks[line]);
      const at = text.indexOf(close);
      if (at < 0) continue;
      if (!/^[\s.,;]*$/.test(text.slice(at + close.length))) return false; // more than a formula
      if (silent) return true;
      const whole = state.getLines(first, line + 1, state.blkIndent, false).trim();
      const token = state.push("math", "", 0);
      token.block = true;
      token.content = whole.slice(open.length, whole.lastIndexOf(close) + (environment ? close.length : 0));
      token.meta = { display: true };
      state.line = line + 1;
      return true;
    }
    return false;
  }

  function depth(top) {
    let deepest = 0;
    for (let level = [top]; level.length; deepest++) level = level.flatMap((each) => [...each.children]);
    return deepest;
  }

  Object.assign(ttsReport, { addMath, formula });
})();
