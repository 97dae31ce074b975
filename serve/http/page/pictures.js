// ---- pictures that go with the next message ----

const LONGEST = 2048, MOST = 64, KEPT = ["image/jpeg", "image/png", "image/webp", "image/gif"];

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

const thumbnail = (url, i) => element("img", {src: url, alt: "Picture " + (i + 1)});

const pictures = {
  list: [], // data: URLs

  async add(files) {
    const chosen = [...files].filter((f) => f.type.startsWith("image/"));
    if (!chosen.length) return;
    if (!server.sees) return view.error("This model reads text alone.");
    try {
      for (const file of chosen) {
        if (this.list.length >= MOST) throw new Error("A message may have " + MOST + " pictures.");
        this.list.push(await pictureOf(file));
      }
      view.error("");
    } catch (e) {
      view.error(e.message);
    }
    this.show();
    byId("ask").focus();
  },

  take() {
    const all = this.list;
    this.list = [];
    this.show();
    return all;
  },

  giveBack(list) {
    this.list = list.concat(this.list);
    this.show();
  },

  show() {
    byId("shown").hidden = !this.list.length;
    byId("shown").replaceChildren(...this.list.map((url, i) => element("span", {}, thumbnail(url, i),
      button("\u00d7", () => { this.list.splice(i, 1); this.show(); }, {"aria-label": "Leave picture " + (i + 1) + " out"}))));
  },

  /** Pasted, dropped, chosen; phones offer their camera. */
  listen() {
    const main = document.querySelector("main");
    byId("picture").addEventListener("click", () => byId("pictures").click());
    byId("pictures").addEventListener("change", (event) => {
      this.add(event.target.files);
      event.target.value = "";
    });
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
