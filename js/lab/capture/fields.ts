/** The fields of the capture form: what they may hold. The sentences are those of `nbprof.capture`; the server checks again. */

export interface Fields {
  /** As typed: grpc://a:6009, b:6009. */
  addresses: string;
  duration: string;
  /** Empty for what suits the number of workers. */
  delay: string;
  hostLevel: string;
  deviceLevel: string;
  pythonLevel: string;
  retries: string;
  name: string;
  /** Below the folder that Jupyter serves. */
  folder: string;
}

export type Field = keyof Fields;

export const DEFAULTS: Readonly<Fields> = {
  addresses: "",
  duration: "2000",
  delay: "",
  hostLevel: "2",
  deviceLevel: "1",
  pythonLevel: "0",
  retries: "3",
  name: "",
  folder: "nbprof-results",
};

export interface Request {
  addresses: string[];
  duration_ms: number;
  delay_ms: number | null;
  host_level: number;
  device_level: number;
  python_level: number;
  retries: number;
  name: string | null;
  folder: string;
}

/** Names of the request by field, as the server says which of them is wrong. */
export const ASKED: Readonly<Record<Field, keyof Request>> = {
  addresses: "addresses",
  duration: "duration_ms",
  delay: "delay_ms",
  hostLevel: "host_level",
  deviceLevel: "device_level",
  pythonLevel: "python_level",
  retries: "retries",
  name: "name",
  folder: "folder",
};

const HOST = "[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9.])?|\\[[0-9A-Fa-f:.]{2,45}(?:%[A-Za-z0-9._-]{1,32})?\\]";
const ADDRESS = new RegExp(`^(${HOST})(?::(\\d{1,9}))?/?$`);
const EXAMPLE = "write it as host:6009, with the port of the profiler server";

/** A text in quotes, as Python shows it. */
const shown = (text: string): string => {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  return quote + text.replaceAll("\\", "\\\\").replaceAll(quote, `\\${quote}`) + quote;
};

const PART = "[a-z](?:[a-z0-9.:-]{0,61}[a-z0-9])?";
const TPU = new RegExp(
  `^((?:(?:${PART}/)?[a-z][a-z0-9-]{0,61}[a-z0-9]/)?[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?)(?::(\\d{1,9}))?/?$`,
);
const TPU_PORT = "8466";
const TPU_EXAMPLE = `write it as tpu://NAME, tpu://ZONE/NAME or tpu://PROJECT/ZONE/NAME, with :PORT if its profiler server is not on ${TPU_PORT}`;

const SCHEMES = ["grpc", "torch", "kineto", "vllm", "sglang"];
const KINETO_EXAMPLE =
  "write it as kineto://1234, with the id of a process of this machine that was started with KINETO_USE_DAEMON=1";

/** Whether an address names a Cloud TPU, whose workers are found when the recording begins. */
export const namesTpu = (text: string): boolean => text.startsWith("tpu://");

function address(text: string): { address: string } | { wrong: string } {
  const scheme = text.lastIndexOf("://");
  const tpu = scheme >= 0 && text.slice(0, scheme).toLowerCase() === "tpu";
  const by = scheme < 0 ? "grpc" : text.slice(0, scheme).toLowerCase();
  if (!tpu && !SCHEMES.includes(by)) {
    return {
      wrong: `${text}: workers are not asked by ${by}; ${EXAMPLE}, or as torch://host:6009 for a program of PyTorch`,
    };
  }
  const rest = scheme < 0 ? text : text.slice(scheme + 3);
  if (by === "kineto") {
    if (/^[1-9]\d{0,8}$/.test(rest)) return { address: `kineto://${rest}` };
    return { wrong: `${shown(text)} names no process: ${KINETO_EXAMPLE}` };
  }
  const match = (tpu ? TPU : ADDRESS).exec(rest);
  if (tpu && !match) return { wrong: `${shown(text)} does not name a TPU: ${TPU_EXAMPLE}` };
  if (!match) {
    const hint = rest.split(":").length > 2 ? "; write an IPv6 address in brackets, as [::1]:6009" : "";
    return { wrong: `${shown(text)} is not an address: ${EXAMPLE}${hint}` };
  }
  const digits = match[2] ?? (tpu ? TPU_PORT : "");
  if (!digits) return { wrong: `${text} has no port: ${EXAMPLE}` };
  const port = Number(digits);
  if (port < 1 || port > 65535) return { wrong: `${text}: the port must be a number from 1 to 65535` };
  return { address: `${by === "grpc" ? "" : `${by}://`}${match[1]}:${port}` };
}

/** The workers that a text names, each once. Spaces and line ends part them as commas do. */
export function addressesOf(text: string): { addresses: string[] } | { wrong: string } {
  const found: string[] = [];
  for (const part of text.split(/[\s,;]+/)) {
    if (!part) continue;
    const parsed = address(part);
    if ("wrong" in parsed) return parsed;
    if (!found.includes(parsed.address)) found.push(parsed.address);
  }
  if (!found.length) {
    return { wrong: "no address given: name the workers, as in grpc://host:6009,grpc://host2:6009" };
  }
  const ofGrpc = found.filter((each) => !each.includes("://") || namesTpu(each));
  if (ofGrpc.length && ofGrpc.length < found.length) {
    return {
      wrong: "programs of PyTorch and those of TensorFlow or JAX write different files: record them separately",
    };
  }
  if (found.length > 1 && found.some((each) => /^(vllm|sglang):/.test(each))) {
    return {
      wrong:
        "record one server of vLLM or SGLang at a time: --folder names the folder of one, whose traces could not be told from another's",
    };
  }
  return { addresses: found };
}

/** The number that a field holds, or the sentence why it is none. */
function wholeNumber(text: string, least: number, most: number, rule: string): number | string {
  const plain = text.trim().replaceAll(",", "");
  if (!/^[+-]?\d+$/.test(plain)) return `${rule}, a whole number, not ${shown(text.trim())}`;
  const value = Number(plain);
  return value >= least && value <= most ? value : `${rule}, not ${value.toLocaleString("en-US")}`;
}

const NAME = /^[\p{L}\p{N}_](?:[\p{L}\p{N}_ .+=@()-]{0,58}[\p{L}\p{N}_+=@()-])?$/u;

/** Why a folder cannot be one; "" where it can. */
function wrongFolder(text: string): string {
  const parts = text.split("/").filter(Boolean);
  if (parts.some((part) => part.startsWith(".")) || text.includes("\0")) {
    return `${text}: it is not below the folder that Jupyter serves, or it is hidden. Choose another folder.`;
  }
  return "";
}

/** What is asked of the server, or what is wrong by field. */
export function check(fields: Fields): { request: Request } | { wrong: Partial<Record<Field, string>> } {
  const wrong: Partial<Record<Field, string>> = {};
  const number = (field: Field, least: number, most: number, rule: string): number => {
    const value = wholeNumber(fields[field], least, most, rule);
    if (typeof value === "number") return value;
    wrong[field] = value;
    return 0;
  };
  const workers = addressesOf(fields.addresses);
  if ("wrong" in workers) wrong.addresses = workers.wrong;
  const name = fields.name.trim();
  if (name && !NAME.test(name)) {
    wrong.name =
      "the name of a run has up to 60 letters, digits, spaces and any of . _ + = @ ( ) -, and starts with a letter or digit; " +
      `it cannot be ${shown(name)}`;
  }
  const folder = fields.folder.trim() || DEFAULTS.folder;
  const unfit = wrongFolder(folder);
  if (unfit) wrong.folder = unfit;
  const request: Request = {
    addresses: "addresses" in workers ? workers.addresses : [],
    duration_ms: number("duration", 1, 3_600_000, "the duration must be 1 ms to 3,600,000 ms (an hour)"),
    delay_ms: fields.delay.trim()
      ? number("delay", 0, 3_600_000, "the delay must be 0 ms to 3,600,000 ms (an hour)")
      : null,
    host_level: number("hostLevel", 0, 3, "the host level must be 0, 1, 2 or 3"),
    device_level: number("deviceLevel", 0, 1, "the device level must be 0 or 1"),
    python_level: number("pythonLevel", 0, 1, "the Python level must be 0 or 1"),
    retries: number("retries", 0, 100, "the number of retries must be 0 to 100"),
    name: name || null,
    folder,
  };
  return Object.keys(wrong).length ? { wrong } : { request };
}

/** What was kept of the fields; what is missing or of another kind is as usual. */
export function fieldsOf(value: unknown): Fields {
  const fields = { ...DEFAULTS };
  if (typeof value !== "object" || value === null) return fields;
  for (const field of Object.keys(DEFAULTS) as Field[]) {
    const text = (value as Record<string, unknown>)[field];
    if (typeof text === "string" && text.length < 20_000) fields[field] = text;
  }
  return fields;
}

export interface WorkerState {
  address: string;
  /** asked, recording, sending, again, recorded or failed. */
  state: string;
  text: string;
}

const DOES: Readonly<Record<string, string>> = {
  asked: "Request sent",
  recording: "Recording",
  sending: "Sending its recording",
  again: "Retrying",
  recorded: "Recorded",
  failed: "Missing",
};

/** What a worker does, in words. */
export const doing = (state: string): string => (Object.hasOwn(DOES, state) && DOES[state]) || "Waiting";

export interface Result {
  path: string;
  name: string;
  workers: WorkerState[];
  notes: string[];
}

/** What is in an answer's last line where something was recorded. */
export function resultOf(line: Record<string, unknown>): Result | null {
  const { path, name, workers, notes } = line;
  if (typeof path !== "string") return null;
  return {
    path,
    name: String(name ?? ""),
    workers: Array.isArray(workers) ? workers.map(workerOf) : [],
    notes: Array.isArray(notes) ? notes.map(String) : [],
  };
}

export const workerOf = (row: unknown): WorkerState => {
  const { address, state, text } = (row ?? {}) as Record<string, unknown>;
  return { address: String(address ?? ""), state: String(state ?? ""), text: String(text ?? "") };
};

/** How many workers there are in it, in a sentence. */
export function summary(workers: readonly WorkerState[]): string {
  const came = workers.filter(({ state }) => state === "recorded").length;
  const all = workers.length;
  if (came === all) return all === 1 ? "The worker was recorded." : `All ${all} workers were recorded.`;
  return `${came} of ${all} workers ${came === 1 ? "was" : "were"} recorded.`;
}

/** The first words of sentences; another first word may be the name of a machine. */
const BEGINS =
  /^(the|no|it|its|nothing|recording|this|another|what|something|someone|there|addresses|an|sampling|too) /;

/** A sentence of Python's, which begins with a small letter and may lack its full stop. */
export function sentence(text: string): string {
  const trimmed = text.trim();
  const begun = BEGINS.test(trimmed) ? (trimmed[0] as string).toUpperCase() + trimmed.slice(1) : trimmed;
  return /[.?!…]$/.test(begun) ? begun : `${begun}.`;
}
