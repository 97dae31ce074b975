// ---- pictures and files of text that go with the next message ----

const LONGEST = 2048, MOST = 64, FILE_MOST = 512e3, // pixels of a side; pictures or files of a message; bytes: some 130,000 tokens
      KEPT = ["image/jpeg", "image/png", "image/webp", "image/gif"];

const dataUrl = (blob) => new Promise((done, failed) => {
  const reader = new FileReader();
  reader.onload = () => done(reader.result);
  reader.onerror = () => failed(new Error("The file cannot be read."));
  reader.readAsDataURL(blob);
});

/** A file as data: URL, upright, with sides of at most LONGEST pixels: models see less than that. */
async function pictureOf(file) {
  let bitmap;
  try {
    bitmap = await createImageBitmap(file);
  } catch {
    throw new Error(file.name + " is no picture that this browser reads.");
  }
  const scale = Math.min(1, LONGEST / Math.max(bitmap.width, bitmap.height));
  if (scale === 1 && file.size < 1e6 && KEPT.includes(file.type)) return dataUrl(file);
  const canvas = element("canvas", {width: Math.max(1, Math.round(bitmap.width * scale)), height: Math.max(1, Math.round(bitmap.height * scale))}),
        paper = canvas.getContext("2d");
  paper.fillStyle = "#fff";
  paper.fillRect(0, 0, canvas.width, canvas.height);
  paper.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL("image/jpeg", 0.92);
}

/** A file as {name, text}: UTF-8, or UTF-16 that says so. */
async function textOf(file) {
  if (file.size > FILE_MOST) throw new Error(file.name + " is larger than " + bytes(FILE_MOST) + ".");
  const data = new Uint8Array(await file.arrayBuffer().catch(() => { throw new Error(file.name + " cannot be read."); })),
        wide = data[0] === 0xff && data[1] === 0xfe ? "utf-16le" : data[0] === 0xfe && data[1] === 0xff ? "utf-16be" : "utf-8";
  let text = "\0";
  try {
    text = new TextDecoder(wide, {fatal: true}).decode(data).replaceAll("\r\n", "\n");
  } catch { /* as if it had a NUL */ }
  if (text.includes("\0")) throw new Error(file.name + " is no text in UTF-8.");
  return {name: file.name.replace(/[\p{C}`]/gu, "_"), text};
}

const ending = (name) => (/\.(\w+)$/.exec(name) || ["", ""])[1].toLowerCase();

/** A file as the model reads it: its name, and its text between fences that are longer than any in it. */
function fenced(file) {
  const longest = Math.max(2, ...(file.text.match(/`{3,}/g) || []).map((run) => run.length)), fence = "`".repeat(longest + 1);
  return file.name + ":\n" + fence + ending(file.name) + "\n" + file.text.replace(/\n?$/, "\n") + fence + "\n\n";
}

const thumbnail = (url, i) => element("img", {src: url, alt: "Picture " + (i + 1)});

const isPicture = (file) => file.type.startsWith("image/") && file.type !== "image/svg+xml";

const enclosed = {
  pictures: [], // data: URLs
  files: [], // {name, text}

  async add(given) {
    view.error("");
    for (const file of [...given])
      try {
        const picture = isPicture(file), list = picture ? this.pictures : this.files;
        if (picture && !server.sees) throw new Error("This model reads text alone.");
        if (list.length >= MOST) throw new Error("A message may have " + MOST + (picture ? " pictures." : " files."));
        list.push(await (picture ? pictureOf(file) : textOf(file)));
      } catch (e) {
        view.error(e.message);
      }
    this.show();
    byId("ask").focus();
  },

  empty() { return !this.pictures.length && !this.files.length; },

  take() {
    const all = {pictures: this.pictures, files: this.files};
    this.pictures = [], this.files = [];
    this.show();
    return all;
  },

  giveBack(all) {
    this.pictures = all.pictures.concat(this.pictures);
    this.files = all.files.concat(this.files);
    this.show();
  },

  show() {
    const row = (list, what, words) => list.map((one, i) => element("span", {}, what(one, i),
      button("\u00d7", () => { list.splice(i, 1); this.show(); byId("ask").focus(); }, {"aria-label": "Leave " + words(one, i) + " out"})));
    byId("shown").hidden = this.empty();
    byId("shown").replaceChildren(...row(this.pictures, thumbnail, (url, i) => "picture " + (i + 1)),
      ...row(this.files, (f) => element("span", {class: "file", text: visible(f.name) + ", " + bytes(f.text.length)}), (f) => visible(f.name)));
  },

  /** Pasted, dropped, chosen; phones offer their camera. */
  listen() {
    const main = document.querySelector("main");
    for (const [from, chosen] of [["picture", "pictures"], ["text", "texts"]]) {
      byId(from).addEventListener("click", () => byId(chosen).click());
      byId(chosen).addEventListener("change", (event) => {
        this.add(event.target.files);
        event.target.value = "";
      });
    }
    byId("ask").addEventListener("paste", (event) => {
      if (!event.clipboardData.files.length) return;
      event.preventDefault();
      this.add(event.clipboardData.files);
    });
    main.addEventListener("dragover", (event) => { if (event.dataTransfer.types.includes("Files")) event.preventDefault(); });
    main.addEventListener("drop", (event) => {
      if (!event.dataTransfer.files.length) return;
      event.preventDefault();
      this.add(event.dataTransfer.files);
    });
  },
};
