// The same driver as run.py for Node: loads a package folder, calls its entry, announces phases.
"use strict";
const fs = require("fs");
const path = require("path");
const spec = JSON.parse(process.argv[2]);

function mark(name) {
  try {
    fs.closeSync(fs.openSync(spec.mark + name, "r"));
  } catch {
    /* the answer is always "no such file" */
  }
}

async function load(folder) {
  try {
    return require(folder);
  } catch (problem) {
    if (problem.code !== "ERR_REQUIRE_ESM") throw problem;
    const { exports: paths, module, main } = JSON.parse(fs.readFileSync(path.join(folder, "package.json"), "utf8"));
    const dot = typeof paths === "string" ? paths : (paths && (paths["."] || paths)) || module || main || "index.js";
    const file = typeof dot === "string" ? dot : dot.import || dot.default || "index.js";
    return import(require("url").pathToFileURL(path.join(folder, file)).href);
  }
}

function argument(way, file) {
  if (way === "paths") return file;
  const raw = fs.readFileSync(file);
  if (way === "bytes") return raw;
  return way === "json" ? JSON.parse(raw.toString("utf8")) : raw.toString("utf8");
}

function save(result, file) {
  if (result === undefined || result === null || typeof result === "number" || fs.existsSync(file)) return;
  fs.writeFileSync(file, typeof result === "string" || Buffer.isBuffer(result) ? result : JSON.stringify(result, null, 2));
}

async function main() {
  mark("import");
  const loaded = await load(spec.folder);
  if (spec.mode === "import") return mark("exit");
  let entry = loaded;
  for (const part of (spec.entry || "").split(".").filter(Boolean)) {
    // CommonJS has no "default": the module itself is meant.
    entry = part === "default" && entry[part] === undefined ? entry : entry[part];
  }
  if (typeof entry !== "function" && entry && typeof entry.default === "function") entry = entry.default;
  if (typeof entry !== "function") throw new Error(`${spec.entry || "the module"} is not a function`);
  mark("call");
  const given = argument(spec.pass, spec.input);
  save(await (spec.pass === "paths" ? entry(given, spec.output) : entry(given)), spec.output);
  mark("exit");
}

main().catch((problem) => {
  console.error(problem);
  process.exitCode = 1;
});
