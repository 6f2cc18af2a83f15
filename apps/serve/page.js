"use strict";
(() => {
const $ = id => document.getElementById(id);
const make = (tag, attributes, ...children) => {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(attributes || {})) {
    if (k === "class") e.className = v;
    else if (k.startsWith("on")) e.addEventListener(k.slice(2), v);
    else if (v === true) e.setAttribute(k, "");
    else if (v !== false && v != null) e.setAttribute(k, v);
  }
  e.append(...children.filter(c => c != null));
  return e;
};
const newId = () => Date.now().toString(36) + Math.random().toString(36).slice(2, 8);
const newSeed = () => crypto.getRandomValues(new Uint32Array(1))[0];

/* ---- what is kept: conversations in IndexedDB, small things in localStorage -------------------- */

const small = {
  get: k => { try { return localStorage.getItem("godwit." + k) || ""; } catch { return ""; } },
  set: (k, v) => { try { localStorage.setItem("godwit." + k, v); } catch { /* kept for this visit */ } },
};
const store = {
  db: null, all: new Map(), timers: new Map(),
  open: () => new Promise(done => {
    let request;
    try { request = indexedDB.open("godwit", 1); } catch { done(); return; }
    request.onupgradeneeded = () => request.result.createObjectStore("conversations", {keyPath: "id"});
    request.onerror = () => { say("This browser keeps nothing here: conversations end with the page."); done(); };
    request.onsuccess = () => {
      store.db = request.result;
      const read = store.db.transaction("conversations").objectStore("conversations").getAll();
      read.onsuccess = () => { for (const c of read.result) store.all.set(c.id, c); done(); };
      read.onerror = () => done();
    };
  }),
  write: c => {
    const t = store.db && store.db.transaction("conversations", "readwrite");
    if (!t) return;
    t.objectStore("conversations").put(JSON.parse(JSON.stringify(c)));
    t.onerror = t.onabort = () => say("This conversation could not be kept: is the disk full?");
  },
  save: (c, now) => {
    store.all.set(c.id, c);
    c.updated = Date.now();
    if (now) { clearTimeout(store.timers.get(c.id)); store.timers.delete(c.id); store.write(c); }
    else if (!store.timers.has(c.id))
      store.timers.set(c.id, setTimeout(() => { store.timers.delete(c.id); store.write(c); }, 500));
  },
  remove: c => {
    clearTimeout(store.timers.get(c.id));
    store.timers.delete(c.id);
    store.all.delete(c.id);
    if (store.db) store.db.transaction("conversations", "readwrite").objectStore("conversations").delete(c.id);
  },
};

/* A conversation is a tree of messages; `leaf` is the end of the branch that is shown. */
const blank = () => ({id: newId(), title: "", created: Date.now(), updated: Date.now(), system: "",
  settings: {}, nodes: {}, leaf: null});
let chat = blank(), props = null, running = null, pending = [], editing = null;

const path = (c = chat) => {
  const found = [];
  for (let n = c.nodes[c.leaf]; n; n = c.nodes[n.parent]) found.unshift(n);
  return found;
};
const siblings = n => Object.values(chat.nodes).filter(m => m.parent === n.parent && m.role === n.role)
  .sort((a, b) => a.time - b.time || (a.id < b.id ? -1 : 1));
const newest = n => {
  for (;;) {
    const below = Object.values(chat.nodes).filter(m => m.parent === n.id).sort((a, b) => b.time - a.time)[0];
    if (!below) return n;
    n = below;
  }
};
const addNode = (role, parent, more) => {
  const n = Object.assign({id: newId(), role, parent, text: "", time: Date.now()}, more);
  chat.nodes[n.id] = n;
  chat.leaf = n.id;
  return n;
};
const titleOf = c => {
  if (c.title) return c.title;
  const first = Object.values(c.nodes).filter(n => n.role === "user").sort((a, b) => a.time - b.time)[0];
  return first ? (first.text || (first.files && first.files[0].name) || "").trim().slice(0, 60) : "New conversation";
};

/* ---- the server --------------------------------------------------------------------------------- */

const say = text => { $("notice").textContent = text || ""; };
const headers = () => {
  const h = {"Content-Type": "application/json"}, key = small.get("key");
  if (key) h.Authorization = "Bearer " + key;
  return h;
};
const errorOf = async answer => {
  let text = answer.status + " " + answer.statusText;
  try { const e = (await answer.json()).error; text = (e && e.message) || e || text; } catch { /* no JSON */ }
  if (answer.status === 401) text += " – the key is set under Server.";
  return text;
};

async function connect() {
  for (;;) {
    try {
      const health = await fetch("health");
      if (health.status === 200) break;
      const state = await health.json();
      say(state.status === "loading" ? `The model is being loaded: ${Math.round(100 * (state.progress || 0))}%.`
        : (state.error && state.error.message) || "The server is not ready.");
    } catch { say("The server does not answer."); }
    await new Promise(done => setTimeout(done, 1000));
  }
  say("");
  const models = await fetch("v1/models", {headers: headers()});
  if (!models.ok) { say(await errorOf(models)); return; }
  const list = (await models.json()).data, select = $("model");
  select.replaceChildren(...list.map(m => make("option", {value: m.id}, m.id)));
  select.hidden = list.length < 2;
  if (list.some(m => m.id === small.get("model"))) select.value = small.get("model");
  await readProps();
}

/* A model without a chat template goes on with texts; it has not learned to answer. */
const isBase = () => Boolean(props && props.base_model);
const hello = () => !isBase() ? "Ask something. The same seed gives the same answer, on every machine."
  : (props.model_path ? "This model goes on with a text and does not follow instructions: "
    : "The built-in model tells stories and cannot talk: ") + "give it a beginning, such as “Once there was a crane”.";

async function readProps() {
  const answer = await fetch("props?model=" + encodeURIComponent($("model").value), {headers: headers()});
  props = answer.ok ? await answer.json() : null;
  $("server-about").textContent = props
    ? `${props.model_alias}, ${props.default_generation_settings.n_ctx} tokens for a request; ${props.build_info}`
    : "The model is loaded when it is asked.";
  $("input").placeholder = isBase() ? "How a story begins" : "Message";
  if (!path().length) show();
  showGauge();
}

/* ---- markdown, to nodes: nothing that a model writes is ever read as HTML --------------------- */

const words = new Set(("if else for while do return break continue switch case default function const let var class new "
  + "def import from as with try except finally raise lambda yield pass in is not and or None True False null true "
  + "false this self int char void double float long short struct enum typedef static unsigned signed sizeof public "
  + "private protected async await fn mut impl match use pub package func go defer type interface select insert "
  + "update delete where join on group by order limit end then fi done elif echo export local").split(" "));
function highlight(code, text, language) {
  if (/^(te?xt|plain|markdown|md|)$/.test(language) || text.length > 20000) { code.textContent = text; return; }
  const hash = /^(py|python|sh|bash|shell|ruby|rb|yaml|yml|toml|r|perl|make|cmake|dockerfile)/.test(language);
  const parts = /("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\]|\\.)*`)|(\/\/[^\n]*|\/\*[\s\S]*?\*\/|--[ \t][^\n]*|#[^\n]*)|(\b\d[\w.]*)|([A-Za-z_]\w*)/g;
  let at = 0;
  for (const m of text.matchAll(parts)) {
    let kind = m[1] ? "s" : m[2] ? "c" : m[3] ? "n" : words.has(m[4]) ? "k" : "";
    if (m[2] && m[2][0] === "#" && !hash) kind = /^#\s*(include|define|if|endif|else|pragma)/.test(m[2]) ? "k" : "";
    if (m[2] && m[2].startsWith("--") && language !== "sql" && language !== "lua") kind = "";
    code.append(text.slice(at, m.index));
    code.append(kind ? make("span", {class: kind}, m[0]) : m[0]);
    at = m.index + m[0].length;
  }
  code.append(text.slice(at));
}
function codeBlock(text, language) {
  const code = make("code");
  highlight(code, text, language.toLowerCase());
  const copy = make("button", {type: "button", onclick: async () => {
    try { await navigator.clipboard.writeText(text); copy.textContent = "Copied"; }
    catch { copy.textContent = "Select and copy by hand"; getSelection().selectAllChildren(code); }
    setTimeout(() => { copy.textContent = "Copy"; }, 1500);
  }}, "Copy");
  return make("div", {class: "block"}, make("div", {class: "head"}, make("span", null, language || "text"), copy),
    make("pre", {tabindex: "0"}, code));
}
const safeLink = url => /^(https?:|mailto:)/i.test(url);
const inlineRule = new RegExp([
  "\\\\([!-/:-@[-`{-~])",                                    // 1 an escaped character
  "(`+)([\\s\\S]*?[^`])\\2(?!`)",                            // 2 3 code
  "(\\*\\*\\*|\\*\\*|__|~~)(?=\\S)([\\s\\S]*?\\S)\\4",       // 4 5 strong, struck
  "(?<![\\w*])([*_])(?=[^\\s*_])([\\s\\S]*?[^\\s*_])\\6(?![\\w*])", // 6 7 emphasis
  "!?\\[((?:[^\\]\\\\]|\\\\.)*)\\]\\(\\s*<?([^\\s)>]*)>?(?:\\s+\"[^\"]*\")?\\s*\\)", // 8 9 a link
  "<((?:https?://|mailto:)[^\\s>]+)>",                       // 10
  "\\b(https?://[^\\s<>\"'`]*[^\\s<>\"'`.,;:!?)\\]}])",      // 11
  "( {2,}|\\\\)\\n"                                          // 12 a hard break
].join("|"), "g");
function inline(to, text, depth = 0) {
  let at = 0;
  if (depth > 8) { to.append(text); return; }
  for (const m of text.matchAll(inlineRule)) {
    if (m.index < at) continue;
    to.append(text.slice(at, m.index));
    at = m.index + m[0].length;
    if (m[1]) to.append(m[1]);
    else if (m[2]) to.append(make("code", null, m[3].replace(/\n/g, " ").replace(/^ (.+) $/, "$1")));
    else if (m[4]) {
      const e = make(m[4] === "~~" ? "del" : "strong");
      inline(m[4] === "***" ? e.appendChild(make("em")) : e, m[5], depth + 1);
      to.append(e);
    } else if (m[6]) { const e = make("em"); inline(e, m[7], depth + 1); to.append(e); }
    else if (m[9] !== undefined) {
      if (safeLink(m[9])) {
        const e = make("a", {href: m[9], rel: "noopener noreferrer", target: "_blank"});
        inline(e, m[8] || m[9], depth + 1);
        to.append(e);
      } else to.append(m[0]);
    } else if (m[10] || m[11]) to.append(make("a", {href: m[10] || m[11], rel: "noopener noreferrer", target: "_blank"}, m[10] || m[11]));
    else to.append(make("br"));
  }
  to.append(text.slice(at));
}
const item = /^( *)([-*+]|\d{1,9}[.)])( +|$)(.*)$/;
const cells = line => {
  const found = line.trim().replace(/^\|/, "").replace(/(^|[^\\])\|$/, "$1").split(/(?<!\\)\|/);
  return found.map(c => c.trim().replace(/\\\|/g, "|"));
};
function blocks(to, lines, depth = 0) {
  let i = 0, paragraph = [];
  const flush = () => {
    if (paragraph.length) { const p = make("p"); inline(p, paragraph.join("\n")); to.append(p); paragraph = []; }
  };
  while (i < lines.length) {
    const line = lines[i];
    let m;
    if ((m = /^ {0,3}(`{3,}|~{3,})\s*([^\s`]*).*$/.exec(line))) {
      flush();
      const end = new RegExp("^ {0,3}" + m[1][0] + "{" + m[1].length + ",}\\s*$"), inside = [];
      for (i++; i < lines.length && !end.test(lines[i]); i++) inside.push(lines[i]);
      i++;
      to.append(codeBlock(inside.join("\n"), m[2]));
    } else if (!line.trim()) { flush(); i++; }
    else if ((m = /^ {0,3}(#{1,6})\s+(.*?)\s*#*$/.exec(line))) {
      flush();
      const h = make("h" + Math.min(6, m[1].length + 2));
      inline(h, m[2]);
      to.append(h);
      i++;
    } else if (/^ {0,3}([-*_])( *\1){2,} *$/.test(line)) { flush(); to.append(make("hr")); i++; }
    else if (/^ {0,3}>/.test(line) && depth < 12) {
      flush();
      const inside = [];
      for (; i < lines.length && /^ {0,3}>/.test(lines[i]); i++) inside.push(lines[i].replace(/^ {0,3}> ?/, ""));
      blocks(to.appendChild(make("blockquote")), inside, depth + 1);
    } else if ((m = item.exec(line)) && depth < 12 && (m[4] || !paragraph.length)) {
      flush();
      i = list(to, lines, i, depth);
    } else if (line.includes("|") && i + 1 < lines.length
      && /^ *\|?( *:?-+:? *\|)* *:?-+:? *\|? *$/.test(lines[i + 1]) && lines[i + 1].includes("-")
      && cells(line).length === cells(lines[i + 1]).length && !paragraph.length) {
      const align = cells(lines[i + 1]).map(c => /^:-+:$/.test(c) ? "center" : /-:$/.test(c) ? "right" : "");
      const row = (tag, values) => make("tr", null, ...align.map((a, k) => {
        const c = make(tag, a ? {class: a} : null);
        inline(c, values[k] || "");
        return c;
      }));
      const body = make("tbody"), table = make("table", null, make("thead", null, row("th", cells(line))), body);
      for (i += 2; i < lines.length && lines[i].includes("|") && lines[i].trim(); i++) body.append(row("td", cells(lines[i])));
      to.append(table);
    } else { paragraph.push(paragraph.length ? line.trimStart() : line.trimStart()); i++; }
  }
  flush();
}
function list(to, lines, i, depth) {
  const first = item.exec(lines[i]), indent = first[1].length, ordered = /\d/.test(first[2]);
  const e = make(ordered ? "ol" : "ul", ordered && parseInt(first[2], 10) !== 1 ? {start: parseInt(first[2], 10)} : null);
  while (i < lines.length) {
    const m = item.exec(lines[i]);
    if (!m || m[1].length !== indent || /\d/.test(m[2]) !== ordered) break;
    const width = indent + m[2].length + Math.min(m[3].length || 1, 4), inside = [m[4]];
    for (i++; i < lines.length; i++) {
      const line = lines[i], space = /^ */.exec(line)[0].length, next = item.exec(line);
      if (!line.trim()) {
        const after = lines[i + 1] || "", deep = /^ */.exec(after)[0].length;
        if (!after.trim() || (deep < indent + 2 && !(item.exec(after) && deep === indent))) break;
        if (item.exec(after) && deep === indent) { i++; break; }
        inside.push("");
      } else if (next && space < indent + 2) break;
      else if (space < indent + 2 && (lines[i - 1].trim() === "" || /^ {0,3}(#|>|`{3}|~{3})/.test(line))) break;
      else inside.push(line.slice(Math.min(space, width)));
    }
    const li = e.appendChild(make("li")), task = /^\[([ xX])\] +/.exec(inside[0]);
    if (task) {
      li.className = "task";
      inside[0] = inside[0].slice(task[0].length);
      li.append(make("input", {type: "checkbox", disabled: true, checked: task[1] !== " ", "aria-label": "task"}), " ");
    }
    const holder = make("div");
    blocks(holder, inside, depth + 1);
    for (const child of [...holder.childNodes])
      if (child.nodeName === "P" && holder.querySelectorAll(":scope > p").length === 1) li.append(...child.childNodes);
      else li.append(child);
  }
  to.append(e);
  return i;
}
function markdown(to, text) {
  to.replaceChildren();
  blocks(to, text.replace(/\r\n?/g, "\n").replace(/\t/g, "    ").split("\n"));
}

/* ---- what is shown ------------------------------------------------------------------------------- */

const atEnd = () => $("log").scrollHeight - $("log").scrollTop - $("log").clientHeight < 60;
const toEnd = () => { $("log").scrollTop = $("log").scrollHeight; };

function statsOf(n) {
  const parts = [];
  if (n.usage) {
    const cached = (n.usage.prompt_tokens_details || {}).cached_tokens || 0;
    parts.push(`${n.usage.prompt_tokens} tokens read` + (cached ? `, ${cached} of them from the cache` : ""));
    parts.push(`${n.usage.completion_tokens} written`);
  }
  if (n.timings && n.timings.predicted_per_second) parts.push(n.timings.predicted_per_second.toFixed(1) + " tokens/s");
  if (n.finish === "length") parts.push("cut: as long as it may be");
  if (n.stopped) parts.push("stopped");
  if (n.seed != null) parts.push("seed " + n.seed);
  if (n.same != null) parts.push(n.same ? "the same text again ✓" : "not the same text");
  return parts.join(" · ");
}

function callBox(n, call, k) {
  let shown = call.arguments;
  try { shown = JSON.stringify(JSON.parse(call.arguments), null, 2); } catch { /* as it was written */ }
  const box = make("details", {class: "call", open: true}, make("summary", null, "Calls " + call.name),
    make("pre", {tabindex: "0"}, shown));
  const id = "result-" + n.id + "-" + k;
  const result = make("textarea", {id, rows: "2", class: "code",
    oninput: () => { call.result = result.value; store.save(chat); }});
  result.value = call.result || "";
  box.append(make("label", {for: id}, "Result, to be filled in by hand"), result);
  return box;
}

const button = (text, act, label) => make("button", {type: "button", onclick: act, "aria-label": label, title: label}, text);

function actsOf(n) {
  const acts = make("div", {class: "acts"}), all = siblings(n), at = all.indexOf(n);
  const busy = running !== null;
  if (all.length > 1) {
    const move = by => { const to = all[at + by]; if (to && !running) { chat.leaf = newest(to).id; store.save(chat); show(); } };
    acts.append(button("‹", () => move(-1), "The version before"), `${at + 1}/${all.length}`,
      button("›", () => move(1), "The version behind"));
  }
  if (n.text) acts.append(button("Copy", async e => {
    try { await navigator.clipboard.writeText(n.text); e.target.textContent = "Copied"; } catch { say("The browser does not let this page copy."); }
  }, "Copy the message"));
  if (busy) return acts;
  acts.append(button("Edit", () => edit(n), "Edit the message"));
  if (n.role === "assistant") {
    acts.append(button("Regenerate", () => answerTo(n.parent), "Another answer, with another seed"));
    if (n.seed != null && !n.stopped)
      acts.append(button("Same again", () => answerTo(n.parent, {seed: n.seed, like: n}), "The same answer, with the same seed"));
    if (n.id === chat.leaf && !(n.calls || []).length) acts.append(button("Continue", () => goOn(n), "Go on with this answer"));
    if (n.id === chat.leaf && (n.calls || []).length)
      acts.append(button("Send results", () => sendResults(n), "Send the results of the calls"));
  }
  acts.append(button("Delete", () => removeNode(n), "Delete this message and what follows it"));
  return acts;
}

function body(n, view) {
  const parts = [];
  if (n.reasoning) {
    const d = make("details", {open: view.live && !n.text}, make("summary", null, view.live && !n.text ? "Reasoning …" : "Reasoning"));
    d.append(make("div", {class: "thought"}, n.reasoning));
    if (view.fold != null && !view.live) d.open = view.fold;
    d.addEventListener("toggle", () => { view.fold = d.open; });
    parts.push(d);
  }
  if (n.role === "user") {
    if (n.files) parts.push(make("p", null, ...n.files.map(f => thumbnail(f) || make("span", {class: "file"}, f.name))));
    if (n.text) parts.push(make("div", {class: "said"}, n.text));
  } else if (n.role === "tool") {
    parts.push(make("details", null, make("summary", null, "Result of " + (n.name || "a call")), make("div", {class: "thought"}, n.text)));
  } else {
    const text = make("div", {class: "text"});
    markdown(text, n.text);
    if (view.live && !n.text && !n.reasoning) text.className = "text waiting";
    parts.push(text);
  }
  (n.calls || []).forEach((call, k) => parts.push(callBox(n, call, k)));
  if (n.error) parts.push(make("p", {class: "error"}, n.error));
  return parts;
}

/* A picture of a message; null: the file is a text. */
const isPicture = f => typeof f.image === "string" && /^data:image\/(jpeg|png|webp);base64,/.test(f.image);
const thumbnail = f => isPicture(f) ? make("img", {src: f.image, alt: f.name, title: f.name}) : null;

const views = new Map();
function messageView(n) {
  const live = running !== null && running.node === n;
  const view = {live, e: make("article", {class: "message " + n.role, "data-id": n.id, "aria-busy": live ? "true" : null})};
  view.e.append(make("h2", null, {user: "You", assistant: "Model", tool: "Tool"}[n.role] || n.role), ...body(n, view));
  if (n.role === "assistant" && !live) view.e.append(make("p", {class: "stats"}, statsOf(n)));
  if (!live) view.e.append(actsOf(n));
  views.set(n.id, view);
  return view.e;
}
function update(n) {
  const view = views.get(n.id);
  if (!view) return;
  const follow = atEnd();
  view.e.replaceChildren(view.e.firstChild, ...body(n, view));
  if (follow) toEnd(); else $("down").hidden = false;
}

function show() {
  const log = $("log"), shown = path(), keep = atEnd();
  views.clear();
  log.replaceChildren(...(shown.length ? shown.map(messageView)
    : [make("p", {class: "hello"}, hello())]));
  if (keep) toEnd();
  $("title").textContent = titleOf(chat);
  document.title = titleOf(chat) + " – godwit";
  $("send").hidden = running !== null;
  $("stop").hidden = running === null;
  showList();
  showGauge();
}
function showGauge() {
  const n = path().reverse().find(m => m.usage), room = props && props.default_generation_settings.n_ctx;
  $("gauge").hidden = !n || !room;
  if (!n || !room) return;
  const used = n.usage.prompt_tokens + n.usage.completion_tokens;
  $("meter").value = used / room;
  $("gauge-text").textContent = `${used} of ${room} tokens`;
}
function showList() {
  const wanted = $("search").value.toLowerCase();
  const all = [...store.all.values()].filter(c => Object.keys(c.nodes).length).sort((a, b) => b.updated - a.updated);
  const found = all.filter(c => !wanted || titleOf(c).toLowerCase().includes(wanted)
    || Object.values(c.nodes).some(n => n.text.toLowerCase().includes(wanted)));
  $("list").replaceChildren(...found.map(c => make("li", null, make("button",
    {type: "button", "aria-current": c.id === chat.id ? "true" : null, title: titleOf(c), onclick: () => go(c)}, titleOf(c)))));
}
function showFiles() {
  $("files").replaceChildren(...pending.map((f, k) => make("li", null, thumbnail(f), f.name + " ",
    button("×", () => { pending.splice(k, 1); showFiles(); }, "Remove " + f.name))));
}
const drawer = open => {
  $("side").classList.toggle("open", open);
  $("side-open").setAttribute("aria-expanded", open ? "true" : "false");
  if (open) $("search").focus(); else if (document.activeElement && $("side").contains(document.activeElement)) $("input").focus();
};
function go(c) {
  if (running) stop();
  chat = c;
  editing = null;
  small.set("last", c.id);
  drawer(false);
  show();
  toEnd();
}

/* Whole sentences, once each, for those who listen. */
const listen = {
  said: 0,
  start: () => { listen.said = 0; $("live").replaceChildren(); },
  more: (text, last) => {
    const rest = text.slice(listen.said), end = last ? rest.length : Math.max(rest.lastIndexOf(". "), rest.lastIndexOf("! "), rest.lastIndexOf("? "), rest.lastIndexOf("\n")) + 1;
    if (end <= 0) return;
    listen.said += end;
    const words = rest.slice(0, end).trim();
    if (words) $("live").append(make("p", null, words));
  },
};

/* ---- asking ---------------------------------------------------------------------------------------- */

const withFiles = n => (n.files || []).filter(f => !isPicture(f)).map(f => `File ${f.name}:\n\`\`\`\n${f.text}\n\`\`\`\n\n`).join("") + n.text;
const contentOf = n => {
  const pictures = (n.files || []).filter(isPicture).map(f => ({type: "image_url", image_url: {url: f.image}}));
  return pictures.length ? [...pictures, {type: "text", text: withFiles(n)}] : withFiles(n);
};
function messagesTo(id) {
  const all = [];
  if (chat.system) all.push({role: "system", content: chat.system});
  const chain = [];
  for (let n = chat.nodes[id]; n; n = chat.nodes[n.parent]) chain.unshift(n);
  for (const n of chain) {
    if (n.role === "user") all.push({role: "user", content: contentOf(n)});
    else if (n.role === "tool") all.push({role: "tool", tool_call_id: n.call, name: n.name, content: n.text});
    else {
      const m = {role: "assistant", content: n.text};
      if (n.reasoning) m.reasoning_content = n.reasoning;
      if ((n.calls || []).length) m.tool_calls = n.calls.map(c => ({id: c.id, type: "function", function: {name: c.name, arguments: c.arguments}}));
      all.push(m);
    }
  }
  return all;
}
function requestOf(messages, seed) {
  const s = chat.settings, r = {model: $("model").value || undefined, messages, stream: true, seed,
    stream_options: {include_usage: true}};
  if (isBase()) r.max_tokens = Math.min(300, Math.floor(props.default_generation_settings.n_ctx / 3)); // it may never end by itself
  for (const f of fields) if (s[f.name] != null && s[f.name] !== "" && f.name !== "seed")
    r[f.name] = f.list ? s[f.name].split("\\n") : Number(s[f.name]);
  if (s.thinking) r.chat_template_kwargs = {enable_thinking: s.thinking === "on"};
  if (s.tools) r.tools = JSON.parse(s.tools);
  if (s.more) Object.assign(r, JSON.parse(s.more));
  return r;
}

async function* eventsOf(answer) {
  const reader = answer.body.getReader(), decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const {done, value} = await reader.read();
    rest += done ? decoder.decode() : decoder.decode(value, {stream: true});
    let end;
    while ((end = rest.indexOf("\n\n")) >= 0) {
      const block = rest.slice(0, end);
      rest = rest.slice(end + 2);
      for (const line of block.split("\n"))
        if (line.startsWith("data: ") && line !== "data: [DONE]") yield JSON.parse(line.slice(6));
    }
    if (done) return;
  }
}
function take(n, event) {
  if (event.error) throw new Error(event.error.message);
  if (event.usage) { n.usage = event.usage; n.timings = event.timings; }
  if (event.seed != null) n.seed = event.seed;
  const choice = event.choices && event.choices[0];
  if (!choice) return;
  const d = choice.delta || {};
  if (d.content) n.text += d.content;
  if (d.reasoning_content) n.reasoning = (n.reasoning || "") + d.reasoning_content;
  for (const c of d.tool_calls || []) {
    n.calls = n.calls || [];
    const call = n.calls[c.index] = n.calls[c.index] || {id: c.id, name: "", arguments: ""};
    if (c.id) call.id = c.id;
    if (c.function && c.function.name) call.name = c.function.name;
    if (c.function && c.function.arguments) call.arguments += c.function.arguments;
  }
  if (choice.finish_reason) n.finish = choice.finish_reason;
}

/* When the conversation is longer than the context its oldest messages are left out, down to the
 * last one. */
async function askFitting(request, signal) {
  for (;;) {
    const answer = await fetch("v1/chat/completions", {method: "POST", headers: headers(), body: JSON.stringify(request), signal});
    if (answer.status !== 400) return answer;
    const said = await answer.clone().json().catch(() => ({}));
    const first = request.messages.findIndex(m => m.role !== "system"), all = request.messages;
    if (!said.error || said.error.code !== "context_length_exceeded" || first < 0 || first >= all.length - 1) return answer;
    let end = first + 1;
    while (end < all.length - 1 && all[end].role !== "user") end++;
    request = {...request, messages: [...all.slice(0, first), ...all.slice(end)]};
  }
}

async function run(n, request) {
  const abort = new AbortController(), own = chat;
  running = {node: n, abort};
  let drawn = 0, cost = 0, timer = null;
  const draw = () => {
    timer = null;
    const began = performance.now();
    if (chat === own) update(n);
    listen.more(n.text, false);
    drawn = performance.now();
    cost = drawn - began;
    store.save(own);
  };
  listen.start();
  show();
  toEnd();
  try {
    const answer = await askFitting(request, abort.signal);
    if (!answer.ok) throw new Error(await errorOf(answer));
    for await (const event of eventsOf(answer)) {
      take(n, event);
      if (timer === null) timer = setTimeout(draw, Math.max(30, 3 * cost - (performance.now() - drawn)));
    }
  } catch (e) {
    if (abort.signal.aborted) n.stopped = true;
    else n.error = e.message || String(e);
  }
  clearTimeout(timer);
  listen.more(n.text, true);
  running = null;
  store.save(own, true);
  if (chat === own) show();
  if (!props) readProps();
}
function stop() { if (running) running.abort.abort(); }

async function answerTo(parent, more = {}) {
  if (running) return;
  const given = chat.settings.seed;
  const seed = more.seed != null ? more.seed : given != null && given !== "" ? Number(given) : newSeed();
  let request;
  try { request = requestOf(messagesTo(parent), seed); } catch (e) { say("Settings: " + e.message); return; }
  say("");
  if (more.like && more.like.request) {
    const then = more.like.request;
    request = Object.assign({}, then, {messages: request.messages, seed});
  }
  const n = addNode("assistant", parent, {seed});
  const kept = Object.assign({}, request);
  delete kept.messages;
  n.request = kept;
  await run(n, request);
  if (more.like && !n.stopped && !n.error) {
    n.same = n.text === more.like.text && (n.reasoning || "") === (more.like.reasoning || "");
    store.save(chat, true);
    show();
  }
}
async function goOn(n) {
  if (running) return;
  const request = Object.assign(requestOf(messagesTo(n.id), n.seed != null ? n.seed : newSeed()), {continue_final_message: true});
  delete n.error;
  delete n.stopped;
  await run(n, request);
}
async function sendResults(n) {
  let parent = n.id;
  for (const call of n.calls) {
    const t = addNode("tool", parent, {call: call.id, name: call.name, text: call.result || ""});
    parent = t.id;
  }
  await answerTo(parent);
}
async function submit() {
  const text = $("input").value;
  if (running || (!text.trim() && !pending.length)) return;
  const files = pending.length ? pending : undefined, old = editing;
  $("input").value = "";
  pending = [];
  editing = null;
  grow();
  showFiles();
  if (old && old.role === "assistant") {
    addNode("assistant", old.parent, {text, edited: true});
    store.save(chat, true);
    show();
    return;
  }
  const n = addNode("user", old ? old.parent : chat.leaf, {text, files});
  small.set("last", chat.id);
  store.save(chat, true);
  await answerTo(n.id);
}
function edit(n) {
  editing = n;
  $("input").value = n.text;
  pending = (n.files || []).slice();
  showFiles();
  grow();
  $("input").focus();
  say(n.role === "user" ? "Editing: what was said before stays as another version (Esc leaves it)." : "Editing the answer (Esc leaves it).");
}
function removeNode(n) {
  if (!confirm("Delete this message and what follows it?")) return;
  const gone = new Set([n.id]);
  for (let more = true; more;) {
    more = false;
    for (const m of Object.values(chat.nodes)) if (gone.has(m.parent) && !gone.has(m.id)) { gone.add(m.id); more = true; }
  }
  const others = siblings(n).filter(m => m !== n);
  for (const id of gone) delete chat.nodes[id];
  chat.leaf = others.length ? newest(others[others.length - 1]).id : n.parent;
  store.save(chat, true);
  show();
}

/* ---- files, export, import --------------------------------------------------------------------------- */

const seesPictures = () => Boolean(props && props.modalities && props.modalities.vision);
function addPicture(file) {
  if (!seesPictures()) { say(`${file.name}: this model takes no pictures.`); return; }
  if (file.size > 20 << 20) { say(`${file.name} is larger than 20 MB.`); return; }
  const reader = new FileReader();
  reader.onload = () => { pending.push({name: file.name, image: reader.result}); showFiles(); };
  reader.onerror = () => say(`${file.name} cannot be read.`);
  reader.readAsDataURL(file);
}
async function addFile(file) {
  if (/^image\/(jpeg|png|webp)$/.test(file.type)) { addPicture(file); return; }
  if (file.size > 4 << 20) { say(`${file.name} is larger than 4 MB.`); return; }
  const bytes = new Uint8Array(await file.arrayBuffer());
  try {
    const text = new TextDecoder("utf-8", {fatal: true}).decode(bytes);
    if (text.includes("\0")) throw new Error();
    pending.push({name: file.name, text});
  } catch { say(`${file.name} is no text: texts can be read, and pictures (JPEG, PNG, WebP).`); }
  showFiles();
}
function download(name, value) {
  const a = make("a", {href: URL.createObjectURL(new Blob([JSON.stringify(value, null, 1)], {type: "application/json"})), download: name});
  a.click();
  setTimeout(() => URL.revokeObjectURL(a.href), 10000);
}
/* The export of llama-server's page: {conv, messages} with types, parents and children. */
function fromOther(one) {
  const c = blank(), map = new Map();
  c.title = one.conv.name || "";
  for (const m of one.messages) if (m.type !== "root" && m.role !== "system") map.set(String(m.id), newId());
  for (const m of one.messages) {
    if (m.role === "system" && m.type !== "root") { c.system = m.content || ""; continue; }
    const id = map.get(String(m.id));
    if (!id) continue;
    let up = m.parent;
    for (let k = 0; up != null && !map.has(String(up)) && k < 100; k++) up = (one.messages.find(x => String(x.id) === String(up)) || {}).parent;
    const files = (m.extra || []).filter(x => x.content || x.base64Url).map(x => x.content
      ? {name: x.name || "file", text: x.content} : {name: x.name || "picture", image: x.base64Url});
    c.nodes[id] = {id, role: m.role === "user" ? "user" : "assistant", parent: up != null ? map.get(String(up)) || null : null,
      text: typeof m.content === "string" ? m.content : "", time: Number(m.timestamp) || Date.now(),
      reasoning: m.thinking || m.reasoningContent || undefined, files: files.length ? files : undefined};
  }
  const leaf = map.get(String(one.conv.currNode));
  c.leaf = leaf || (Object.values(c.nodes).sort((a, b) => b.time - a.time)[0] || {id: null}).id;
  return c;
}
const isText = x => typeof x === "string";
function checked(c) {
  const good = c && typeof c === "object" && c.nodes && typeof c.nodes === "object"
    && Object.entries(c.nodes).every(([id, n]) => n && n.id === id && isText(n.role) && isText(n.text) && (n.parent === null || c.nodes[n.parent]))
    && (c.leaf === null || c.nodes[c.leaf]);
  if (!good) throw new Error("it has no conversation of this page");
  for (const n of Object.values(c.nodes)) { /* no circles */
    const seen = new Set();
    for (let m = n; m; m = c.nodes[m.parent]) { if (seen.has(m.id)) throw new Error("its messages go in a circle"); seen.add(m.id); }
  }
  return Object.assign(blank(), c, {id: newId(), title: isText(c.title) ? c.title : "", settings: c.settings || {}});
}
async function importFile(file) {
  try {
    const text = await file.text();
    let value;
    try { value = JSON.parse(text); } catch { value = text.split("\n").filter(l => l.trim()).map(l => JSON.parse(l)); }
    const list = value.godwit ? value.conversations : Array.isArray(value) ? value : [value];
    const read = list.map(one => one.conv && one.messages ? fromOther(one) : checked(one));
    if (!read.length) throw new Error("it has no conversation");
    for (const c of read) store.save(c, true);
    go(read[0]);
    say(`${read.length} ${read.length === 1 ? "conversation" : "conversations"} imported.`);
  } catch (e) { say(`${file.name} cannot be imported: ${e.message}.`); }
}

/* ---- settings ------------------------------------------------------------------------------------------ */

const fields = [
  {name: "temperature", label: "Temperature", step: "0.05"}, {name: "top_k", label: "Top k", step: "1"},
  {name: "top_p", label: "Top p", step: "0.01"}, {name: "min_p", label: "Min p", step: "0.01"},
  {name: "repeat_penalty", label: "Repeat penalty", step: "0.01"}, {name: "presence_penalty", label: "Presence penalty", step: "0.1"},
  {name: "frequency_penalty", label: "Frequency penalty", step: "0.1"}, {name: "max_tokens", label: "Most tokens", step: "1"},
  {name: "seed", label: "Seed", step: "1"}, {name: "stop", label: "Stop at (\\n between several)", list: true}];
for (const f of fields) {
  const id = "field-" + f.name, input = make("input", {id, type: f.list ? "text" : "number", step: f.step, min: f.list ? null : f.name.includes("penalty") ? "-2" : "0", inputmode: f.list ? null : "decimal"});
  const reset = button("↺", () => { input.value = ""; keepSettings(); }, "Reset " + f.label);
  f.input = input;
  $("fields").append(make("section", null, make("label", {for: id}, f.label), make("div", null, input, reset)));
}
function openSettings() {
  const d = props ? props.default_generation_settings.params : {};
  $("system").value = chat.system;
  for (const f of fields) {
    const v = f.name === "max_tokens" ? d.n_predict : d[f.name];
    f.input.value = chat.settings[f.name] != null ? chat.settings[f.name] : "";
    f.input.placeholder = f.name === "seed" ? "another each time" : v == null ? "" : v === -1 && f.name === "max_tokens" ? "no limit" : String(v);
  }
  $("thinking").value = chat.settings.thinking || "";
  $("tools").value = chat.settings.tools || "";
  $("more").value = chat.settings.more || "";
  $("settings-error").textContent = "";
  $("settings").showModal();
}
function keepSettings() {
  const problem = [];
  chat.system = $("system").value;
  for (const f of fields) if (f.input.value === "") delete chat.settings[f.name]; else chat.settings[f.name] = f.input.value;
  for (const [name, list] of [["tools", true], ["more", false]]) {
    const text = $(name).value.trim();
    try {
      const value = text ? JSON.parse(text) : null;
      if (text && Array.isArray(value) !== list) throw new Error(list ? "a list is needed" : "an object is needed");
      if (text && typeof value !== "object") throw new Error("an object is needed");
      if (text) chat.settings[name] = text; else delete chat.settings[name];
    } catch (e) { problem.push(`${name === "tools" ? "Tools" : "More fields"}: ${e.message}`); }
  }
  if ($("thinking").value) chat.settings.thinking = $("thinking").value; else delete chat.settings.thinking;
  $("settings-error").textContent = problem.join("; ");
  if (Object.keys(chat.nodes).length) store.save(chat);
  return !problem.length;
}
const theme = () => { document.documentElement.className = small.get("theme"); $("theme").value = small.get("theme"); };

/* ---- hands ------------------------------------------------------------------------------------------------ */

function grow() {
  const input = $("input");
  input.style.height = "auto";
  input.style.height = input.scrollHeight + 2 + "px";
}
$("form").addEventListener("submit", e => { e.preventDefault(); submit(); });
$("stop").addEventListener("click", stop);
$("input").addEventListener("input", grow);
$("input").addEventListener("keydown", e => {
  if (e.key === "Enter" && !e.shiftKey && !e.isComposing) { e.preventDefault(); submit(); }
  if (e.key === "ArrowUp" && !$("input").value && !running) {
    const last = path().reverse().find(n => n.role === "user");
    if (last) { e.preventDefault(); edit(last); }
  }
});
$("input").addEventListener("paste", e => {
  const data = e.clipboardData;
  if (data.files.length) { e.preventDefault(); for (const f of data.files) addFile(f); return; }
  const text = data.getData("text/plain");
  if (text.length > 4000) { e.preventDefault(); pending.push({name: `pasted-${pending.length + 1}.txt`, text}); showFiles(); }
});
document.addEventListener("keydown", e => {
  if (e.key === "Escape" && !document.querySelector("dialog[open]")) {
    if (running) { e.preventDefault(); stop(); }
    else if (editing) { editing = null; $("input").value = ""; pending = []; showFiles(); grow(); say(""); }
    else drawer(false);
  }
  if ((e.ctrlKey || e.metaKey) && e.key.toLowerCase() === "k") { e.preventDefault(); drawer(true); $("search").focus(); $("search").select(); }
  if ((e.ctrlKey || e.metaKey) && e.shiftKey && e.key.toLowerCase() === "o") { e.preventDefault(); go(blank()); $("input").focus(); }
});
const main = document.querySelector("main");
for (const kind of ["dragenter", "dragover"]) main.addEventListener(kind, e => { e.preventDefault(); main.classList.add("drop"); });
for (const kind of ["dragleave", "drop"]) main.addEventListener(kind, e => { e.preventDefault(); main.classList.remove("drop"); });
main.addEventListener("drop", e => { for (const f of e.dataTransfer.files) addFile(f); });
$("attach").addEventListener("click", () => $("attach-file").click());
$("attach-file").addEventListener("change", async e => { for (const f of e.target.files) await addFile(f); e.target.value = ""; });
$("log").addEventListener("scroll", () => { if (atEnd()) $("down").hidden = true; });
$("down").addEventListener("click", () => { toEnd(); $("down").hidden = true; });
$("new").addEventListener("click", () => { go(blank()); $("input").focus(); });
$("search").addEventListener("input", showList);
$("side-open").addEventListener("click", () => drawer(true));
$("side-close").addEventListener("click", () => drawer(false));
$("veil").addEventListener("click", () => drawer(false));
$("model").addEventListener("change", () => { small.set("model", $("model").value); readProps(); });
$("settings-open").addEventListener("click", openSettings);
$("settings").addEventListener("input", keepSettings);
$("settings").addEventListener("cancel", keepSettings);
$("settings-close").addEventListener("click", e => { if (!keepSettings()) e.preventDefault(); });
$("rename").addEventListener("click", () => {
  const name = prompt("Name of the conversation", titleOf(chat));
  if (name !== null) { chat.title = name.trim(); if (Object.keys(chat.nodes).length) store.save(chat, true); show(); }
});
$("delete").addEventListener("click", () => {
  if (!confirm("Delete this conversation?")) return;
  store.remove(chat);
  $("settings").close();
  go(blank());
});
const packed = list => ({godwit: 1, conversations: list});
$("export-one").addEventListener("click", () => download("conversation.json", packed([chat])));
$("export-all").addEventListener("click", () => download("conversations.json", packed([...store.all.values()])));
$("import").addEventListener("click", () => $("import-file").click());
$("import-file").addEventListener("change", async e => { for (const f of e.target.files) await importFile(f); e.target.value = ""; });
$("server-open").addEventListener("click", () => { $("key").value = small.get("key"); $("server").showModal(); });
$("key").addEventListener("change", () => { small.set("key", $("key").value.trim()); connect(); });
$("theme").addEventListener("change", () => { small.set("theme", $("theme").value); theme(); });
addEventListener("pagehide", () => { for (const c of store.all.values()) if (store.timers.has(c.id)) store.save(c, true); });

(async () => {
  theme();
  await store.open();
  const last = store.all.get(small.get("last"));
  if (last) chat = last;
  show();
  toEnd();
  $("input").focus();
  await connect();
})();
})();
