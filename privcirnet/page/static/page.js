// The page: an image goes to the client behind it, and what the client tells is drawn as it comes.

import { bar, bytes, draw, duration, element, find, plural } from "./drawing.js";

let running = null; // the AbortController of the image that runs
let facts = null; // what the page was told at its start
let rounds = []; // of the program
let times = []; // seconds of each round of this image
let total = 0; // bytes of this image so far, both ways
let chosen = {}; // name and, of a test image, label of the image that runs
let spoken = 0; // quarters of the rounds that were said aloud
const promise = find("answer").querySelector(".hint");

function say(words) {
  find("status").textContent = words;
}

function fail(error) {
  const words = error.rule ? `${error.rule}: got ${error.got}; ${error.remedy}` : String(error);
  find("error").textContent = chosen.file ? `${chosen.file}: ${words}` : words;
  find("error").hidden = false;
  find("step").textContent = "Ready for another image.";
  for (const row of find("layers").querySelectorAll("[aria-current]")) row.removeAttribute("aria-current");
}

// What an image before left: itself, what the server saw of it, the answer, its rounds, and what they took.
function clear() {
  for (const name of ["image", "noise"]) {
    find(name).hidden = true;
    find(name).parentElement.querySelector(".hint").hidden = false;
    find(`${name}-words`).textContent = "";
  }
  find("answer").replaceChildren(promise);
  find("answer-words").textContent = "";
  find("costs").hidden = true;
  find("progress").value = 0;
  if (facts) showRounds(facts);
}

function showRounds(program) {
  rounds = program.rounds;
  const rows = rounds.map(({ name, what }) => {
    const cells = [0, 1, 2].map(() => element("td", { className: "n" }, "–"));
    const title = element("th", { scope: "row" }, name, element("small", {}, what));
    return element("tr", {}, title, ...cells, element("td", { className: "bars" }));
  });
  find("layers").querySelector("tbody").replaceChildren(...rows);
}

const row = (number) => find("layers").querySelector("tbody").rows[number];

const on = {
  connecting({ open }) {
    find("step").textContent = open ? "Encrypting the image …" : "Connecting to the server and making keys …";
  },
  program(program) {
    showRounds(program);
    [times, total, spoken] = [[], 0, 0];
    Object.assign(find("progress"), { value: 0, max: rounds.length });
    find("keys").textContent = bytes(program.bytes_keys);
    if (program.seconds !== null) find("keys-note").textContent = `made and accepted in ${duration(program.seconds)}`;
  },
  rounds(phase) {
    showRounds(phase);
    [times, total, spoken] = [[], 0, 0];
    Object.assign(find("progress"), { value: 0, max: rounds.length });
  },
  image(image) {
    const size = `${image.width} × ${image.height} pixels, ${image.channels === 1 ? "grey" : "RGB"}`;
    draw(find("image"), image, `${chosen.name}, as the network sees it: ${size}`);
    find("image-words").textContent = `As the network sees it: ${size}. ${image.steps.join(", ")}.`;
    find("answer").replaceChildren(element("p", { className: "hint" }, "Not there yet."));
    find("answer-words").textContent = "";
  },
  preparing() {
    find("step").textContent = "Preparing the image’s encrypted work …";
  },
  request({ round, bytes: size, ciphertexts, picture }) {
    const { name } = rounds[round];
    row(round).setAttribute("aria-current", "step");
    const past = `${bytes(total)} and ${duration(times.reduce((sum, time) => sum + time, 0))} so far`;
    find("step").textContent = `Round ${round + 1} of ${rounds.length}, ${name}${round ? ` · ${past}` : ""}`;
    if (!picture) return;
    const what = ciphertexts ? plural(ciphertexts, "ciphertext") : "masked values";
    const words = `Request ${round + 1} of ${rounds.length}, for ${name}: ${what}, ${bytes(size)}.`;
    draw(find("noise"), picture, `${facts.encrypted ? "Random-looking noise" : "Bytes"}. ${words}`);
    const drawn = ciphertexts ? "A pixel is one coefficient of the first: its highest 8 bits." : "A pixel is a byte.";
    const pixels = facts.encrypted ? drawn : "NOT ENCRYPTED.";
    find("noise-words").textContent = `${words} ${pixels}`;
  },
  reply({ round, bytes_up, bytes_down, seconds }) {
    const [, up, down, time] = row(round).cells;
    [up.textContent, down.textContent, time.textContent] = [bytes(bytes_up), bytes(bytes_down), duration(seconds)];
    row(round).removeAttribute("aria-current");
    row(round).className = "done";
    times.push(seconds);
    total += bytes_up + bytes_down;
    const longest = Math.max(...times);
    times.forEach((spent, number) => row(number).cells[4].replaceChildren(bar(0, spent / longest)));
    find("progress").value = round + 1;
    const quarter = Math.floor((4 * (round + 1)) / rounds.length);
    if (quarter > spoken && quarter < 4) say(`${round + 1} of ${rounds.length} rounds done`);
    spoken = quarter;
  },
  answer({ logits, classes, ...costs }) {
    const values = logits.map(({ value }) => value);
    const [low, high] = [Math.min(0, ...values), Math.max(0, ...values)];
    const place = (value) => (high > low ? (value - low) / (high - low) : 0);
    const bars = logits.map(({ name, value }) => element("li", {},
      element("b", { title: name }, name),
      bar(Math.min(place(0), place(value)), Math.max(place(0), place(value))),
      element("data", { value: String(value) }, value.toFixed(2))));
    const list = element("ol", { className: "logits" }, ...bars);
    list.setAttribute("aria-label", "Logits, the largest first");
    const alone = logits.length === 1;
    find("answer").replaceChildren(element("p", { className: "winner" }, logits[0].name), ...(alone ? [] : [list]));
    const shown = alone ? "The class alone" : logits.length < classes ? `The ${logits.length} largest of ${classes} logits` : "All logits";
    find("answer-words").replaceChildren(`${shown}${facts.encrypted ? ", decrypted here" : ""}.`, ...verdict(logits[0].name));
    find("step").textContent = `Done: ${logits[0].name}, ${showCosts(costs)}.`;
    const logit = alone ? "" : `, with a logit of ${values[0].toFixed(2)}`;
    say(`The answer is ${logits[0].name}${logit}, after ${duration(costs.seconds)}.`);
  },
  refused({ rule, got, remedy, ...costs }) {
    find("answer").replaceChildren(
      element("p", { className: "winner wrong" }, "Refused"),
      element("p", {}, "The result is wrong and is not shown. A mask wrapped by chance, or the server computed something else."),
      element("p", {}, "The server is not told. To ask for this image again at once would tell it."));
    find("answer-words").textContent = `${rule}: got ${got}; ${remedy}.`;
    find("step").textContent = `Refused, ${showCosts(costs)}.`;
    say("The result is refused: it is wrong. Do not ask for this image again at once.");
  },
  error: fail,
};

// The tiles; returns what an image took in words.
function showCosts({ seconds, bytes_up, bytes_down, rounds: count, prepared, online }) {
  find("seconds").textContent = duration(seconds);
  const phase = online ? `; the online phase ${duration(online.seconds)} in ${plural(online.rounds, "round")}, after the preparation` : "";
  find("seconds-note").textContent = `${plural(count, "round")}${prepared ? ", prepared before" : phase}`;
  for (const what of ["sent", "received"]) {
    const yours = facts.one_round ? "ciphertexts of your image" : "ciphertexts of your shares";
    const direct = what === "sent" ? yours : "ciphertexts of masked results";
    const part = online && `${bytes(what === "sent" ? online.bytes_up : online.bytes_down)} of it in the online phase`;
    find(`${what}-note`).textContent = prepared ? "masked values, no ciphertexts" : part || direct;
  }
  [find("sent").textContent, find("received").textContent] = [bytes(bytes_up), bytes(bytes_down)];
  find("costs").hidden = false;
  return `after ${plural(count, "round")} and ${duration(seconds)}`;
}

function verdict(name) {
  if (!chosen.label) return [];
  const right = chosen.label === name;
  const words = right ? "✓ as it is labelled" : `✗ it is labelled ${chosen.label}`;
  return [" ", element("span", { className: right ? "right" : "wrong" }, words)];
}

async function* events(response) {
  let text = "";
  for await (const piece of response.body.pipeThrough(new TextDecoderStream())) {
    const whole = (text + piece).split("\n\n");
    text = whole.pop();
    for (const event of whole) {
      const [name, data] = event.split("\n").map((line) => line.slice(line.indexOf(": ") + 2));
      yield [name, JSON.parse(data)];
    }
  }
}

function waiting() {
  if (running) say("An image is being classified. Wait for its answer, or stop it.");
  return running !== null;
}

async function classify(address, body, image) {
  if (waiting()) return;
  [chosen, running] = [image, new AbortController()];
  busy(true);
  clear();
  find("error").hidden = true;
  find("step").textContent = "Preparing the image …";
  say(`Classifying ${image.name}`);
  find("run").scrollIntoView({ block: "nearest" });
  try {
    const response = await fetch(address, { method: "POST", body, signal: running.signal });
    if (!response.ok) throw await response.json();
    let last = "";
    for await (const [name, data] of events(response)) on[(last = name)](data);
    if (!["answer", "refused", "error"].includes(last)) throw "the client ended before the answer: see the terminal of infer.py";
  } catch (error) {
    const gone = "the client must run: got no answer; see the terminal of infer.py, and start it again";
    if (error.name === "AbortError") find("step").textContent = "Stopped. Ready for another image.";
    else fail(error instanceof TypeError ? gone : error);
    if (error.name === "AbortError") say("Stopped");
  }
  running = null;
  busy(false);
}

function busy(now) {
  find("stop").hidden = !now;
  for (const button of [find("pick"), ...find("tests").querySelectorAll("button")]) {
    button.setAttribute("aria-disabled", String(now));
  }
}

function upload(file) {
  if (!file || waiting()) return;
  for (const button of find("tests").querySelectorAll("button")) button.setAttribute("aria-pressed", "false");
  if (facts && file.size > facts.most_bytes) {
    clear();
    chosen = { file: file.name };
    const rule = `an image file must have at most ${facts.most_bytes / 2 ** 20} MiB`;
    fail({ rule, got: bytes(file.size), remedy: "make the picture smaller" });
    return;
  }
  classify("classify", file, { name: file.name, file: file.name });
}

function showTests(labels) {
  const buttons = labels.map((label, number) => {
    const words = `Test image ${number + 1}, labelled ${label}`;
    const picture = element("img", { src: `tests/${number}.png`, alt: "" });
    const button = element("button", { type: "button", title: label }, picture);
    button.setAttribute("aria-label", words);
    button.setAttribute("aria-pressed", "false");
    button.addEventListener("click", () => {
      if (waiting()) return;
      for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
      classify(`classify/${number}`, null, { name: words, label });
    });
    return button;
  });
  find("tests").querySelector(".thumbs").replaceChildren(...buttons);
  find("tests").hidden = !labels.length;
}

function listen() {
  find("pick").addEventListener("click", () => waiting() || find("file").click());
  find("file").addEventListener("change", ({ target }) => {
    upload(target.files[0]);
    target.value = "";
  });
  find("stop").addEventListener("click", () => {
    running?.abort();
    find("pick").focus();
  });
  document.addEventListener("keydown", ({ key }) => key === "Escape" && running?.abort());
  document.addEventListener("paste", ({ clipboardData }) => upload(clipboardData.files[0]));
  for (const [name, over] of [["dragover", true], ["dragleave", false], ["drop", false]]) {
    document.addEventListener(name, (event) => {
      event.preventDefault();
      find("drop").classList.toggle("over", over);
      if (name === "drop") upload(event.dataTransfer.files[0]);
    });
  }
}

function showFacts() {
  const size = `${facts.most_bytes / 2 ** 20} MiB`;
  const stays = facts.encrypted ? "It does not leave this machine. " : "";
  find("limits").textContent = `${stays}JPEG, PNG, WebP and others, at most ${size}.`;
  const hidden = facts.encrypted ? [] : ["⚠ A rehearsal (engine=cleartext): NOTHING IS ENCRYPTED."];
  if (hidden.length) {
    for (const hint of document.querySelectorAll(".hint")) hint.textContent = "A rehearsal hides nothing.";
    find("kicker").textContent = "privcirnet · rehearsal in clear";
    find("promise").textContent = "A rehearsal: the server sees your image.";
    document.title = "Rehearsal in clear";
  }
  const warnings = hidden.map((words) => element("p", { className: "alert" }, words));
  document.querySelector("header").append(...warnings);
  find("tests-title").textContent = `Or a test image of ${facts.data}`;
  const about = [`Network for ${facts.data}, ${facts.shape.join(" × ")} inputs`, facts.place, facts.parameters];
  find("about").textContent = [`${about.join("; ")}.`, ...facts.notes].join(" ");
  if (facts.one_round) {
    find("lead").textContent = "There is one round. The server computes every layer on ciphertexts, and learns no share.";
  }
  showTests(facts.tests);
  showRounds(facts);
}

// How many inferences are prepared: the client does that while no image runs.
async function showStock() {
  try {
    const { prepared, wanted, stopped } = await (await fetch("stock")).json();
    find("stock").hidden = !wanted;
    const why = stopped ? ` No more for now: ${stopped}.` : "";
    find("stock").textContent = `Prepared for ${prepared} of ${wanted} images to come.${why}`;
    if (!wanted) return;
  } catch {
    find("stock").textContent = "";
  }
  setTimeout(showStock, 1000);
}

listen();
showStock();
facts = await (await fetch("facts")).json();
showFacts();
