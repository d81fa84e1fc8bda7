// Elements and pictures. Texts from outside become text nodes, never markup.

export const find = (name) => document.getElementById(name);

export function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

// A picture of {width, height, channels, pixels: base64} on a canvas, one pixel each; the style sheet enlarges it.
export function draw(canvas, picture, words) {
  const octets = Uint8Array.from(atob(picture.pixels), (letter) => letter.charCodeAt(0));
  Object.assign(canvas, { width: picture.width, height: picture.height, hidden: false });
  const context = canvas.getContext("2d");
  const image = context.createImageData(picture.width, picture.height);
  for (let place = 0; place < picture.width * picture.height; place++) {
    for (let colour = 0; colour < 3; colour++) {
      image.data[4 * place + colour] = octets[picture.channels * place + (picture.channels === 3 ? colour : 0)];
    }
    image.data[4 * place + 3] = 255;
  }
  context.putImageData(image, 0, 0);
  canvas.setAttribute("aria-label", words);
  canvas.parentElement.querySelector(".hint").hidden = true;
}

// A bar from one share of its track to another, both in [0, 1].
export function bar(from, to) {
  const made = element("i");
  made.style.setProperty("--from", `${100 * from}%`);
  made.style.setProperty("--length", `${100 * (to - from)}%`);
  const track = element("span", { className: "track" }, made);
  track.style.display = "block";
  track.setAttribute("aria-hidden", "true");
  return track;
}

const three = (value) => value.toLocaleString("en", { minimumSignificantDigits: 3, maximumSignificantDigits: 3 });

export function bytes(count) {
  if (count < 1e3) return `${count} B`;
  return count < 999.5e3 ? `${three(count / 1e3)} kB` : `${three(count / 1e6)} MB`;
}

export function duration(seconds) {
  return seconds < 0.9995 ? `${three(1e3 * seconds)} ms` : `${three(seconds)} s`;
}

export const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
