// Acts that need a value: positions and byte limits. Each is confirmed with what REST says will happen.
import { ask, call } from "../grid/actions.js";
import { element } from "../grid/elements.js";

const count = (number, what) => (number ? `${number.toLocaleString("en")} offsets ${what}` : "");

function lineOf(each) {
  if (each.refused) return `partition ${each.partition}: ${each.refused}`;
  const effect = [count(each.repeated, "are copied again"), count(each.skipped, "are not copied"), count(each.lost, "are lost already")];
  const held = each.heldBy.length ? `taken from ${each.heldBy.join(", ")} for the moment` : "";
  const what = [...effect, held].filter(Boolean).join("; ") || "nothing is repeated or skipped";
  return `partition ${each.partition}: from ${each.from ?? "no position"} to ${each.beginsAt}: ${what}`;
}

function labelled(text, field) {
  return element("label", { text: `${text} ` }, field);
}

function choices(names, label) {
  return element("select", { ariaLabel: label }, ...names.map((text) => element("option", { text })));
}

// Form that sets or forgets the positions of a topic.
export function positionActs(topic, chosen) {
  const kind = choices(["earliest", "latest", "offset", "time", "forget"], "Position");
  const value = element("input", { ariaLabel: "Offset or time", placeholder: "offset or time" });
  const partition = element("input", { type: "number", min: 0, placeholder: "all", ariaLabel: "Partition" });
  const button = element("button", { text: "Change position", kind: "mark", type: "button" });
  button.addEventListener("click", () => {
    const number = partition.value === "" ? {} : { partition: Number(partition.value) };
    const forgets = kind.value === "forget";
    const query = new URLSearchParams(chosen);
    if (forgets && partition.value !== "") query.set("partition", partition.value);
    const path = `/positions/${encodeURIComponent(topic)}`;
    const method = forgets ? "DELETE" : "POST";
    const wanted = {
      earliest: { to: "earliest" },
      latest: { to: "latest" },
      offset: { offset: Number(value.value) },
      time: { time: value.value },
    };
    const body = forgets ? null : { ...wanted[kind.value], ...number };
    const explain = async () => {
      const dry = new URLSearchParams([...query, ["dry_run", "true"]]);
      const effect = await call(method, `${path}?${dry}`, body);
      return effect.partitions.map(lineOf);
    };
    ask({ text: `${forgets ? "Forget" : "Change"} position`, method, path: `${path}?${query}`, body, explain });
  });
  return [labelled("position", kind), value, labelled("of partition", partition), button];
}

// Form that limits what `of` names to megabytes per second. `path`: of the limit.
export function limitActs(of, path) {
  const rate = element("input", { type: "number", min: 0.01, step: 0.01, placeholder: "MB/s", ariaLabel: `Limit of ${of} in MB/s` });
  const set = element("button", { text: "Limit", kind: "mark", type: "button" });
  const clear = element("button", { text: "No limit", kind: "mark", type: "button" });
  set.addEventListener("click", () => {
    const bytesPerSecond = Math.round(Number(rate.value) * 1e6);
    const explain = async () => {
      if (!bytesPerSecond) throw new Error("give a rate in MB/s");
      return [`${of} is copied at ${rate.value} MB/s at most. What waits is kept at the source, and lag grows.`];
    };
    ask({ text: `Limit ${of}`, method: "PUT", path, body: { bytesPerSecond }, explain });
  });
  clear.addEventListener("click", () => {
    ask({ text: `Remove the limit of ${of}`, method: "DELETE", path, explain: async () => [`${of} is copied as fast as it can be.`] });
  });
  return [labelled("limit", rate), set, clear];
}

// Line of buttons and fields.
export const acts = (...shown) => element("p", { kind: "acts" }, ...shown);
