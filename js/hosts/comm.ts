/**
 * Comms of JupyterLab, used so that the kernel has nothing to say about them. What a kernel says of a comm it writes to
 * stderr, and that is the output of whatever cell runs.
 */

export interface Message {
  header: { msg_type: string };
  parent_header: { msg_type?: string };
  content: Record<string, unknown>;
  buffers?: (ArrayBuffer | ArrayBufferView)[] | undefined;
}

/** What is sent for and when it is done. */
interface Future<T = unknown> {
  readonly done: Promise<T>;
}

/** What is needed of JupyterLab's IComm; the last three came with 4.4. */
export interface Comm {
  readonly isDisposed: boolean;
  onMsg: (message: Message) => unknown;
  onClose: (message: Message) => unknown;
  open(data?: unknown): Future | undefined;
  send(data: unknown): unknown;
  close(): unknown;
  readonly commsOverSubshells?: string;
  readonly subshellStarted?: Promise<void>;
  readonly subshellId?: string | null;
}

/** What is needed of JupyterLab's IKernelConnection. */
export interface Kernel {
  readonly status: string;
  readonly info: Promise<unknown>;
  readonly supportsSubshells?: boolean;
  readonly clientId?: string;
  readonly username?: string;
  sendShellMessage?(message: object, expectReply: boolean, disposeOnDone: boolean): Future;
  createComm(target: string): Comm;
  requestCommInfo(content: { target_name: string }): Promise<{ content: { comms?: object } }>;
}

/**
 * One comm of each target that is neither opened nor closed. JupyterLab has a kernel answer each target on a thread of
 * its own, and ends that in the moment in which the target's last comm is closed: the kernel, which has not heard of
 * the closing by then, warns of the tasks that the thread leaves behind.
 */
const KEPT = new WeakMap<Kernel, Map<string, Comm>>();

/** The comm that stays; a kernel that was restarted has lost the one before. */
function commOf(kernel: Kernel, target: string): Comm {
  const targets = KEPT.get(kernel) ?? new Map<string, Comm>();
  KEPT.set(kernel, targets);
  let comm = targets.get(target);
  if (!comm || comm.isDisposed) {
    comm = kernel.createComm(target);
    targets.set(target, comm);
  }
  return comm;
}

/** A comm that is not open yet. */
export function newComm(kernel: Kernel, target: string): Comm {
  commOf(kernel, target);
  return kernel.createComm(target);
}

/** Whether the kernel answers a comm beside the cell that runs, as soon as that is known. */
export async function answersBeside(kernel: Kernel, comm: Comm): Promise<boolean> {
  if (!comm.subshellStarted || comm.commsOverSubshells === "disabled") return false;
  await kernel.info;
  if (!kernel.supportsSubshells) return false;
  return comm.subshellStarted.then(
    () => true,
    () => false,
  );
}

/** Opens a comm; resolves when the kernel has dealt with that: a message that overtakes it is one of a comm unknown. */
export async function open(comm: Comm, data: object): Promise<void> {
  await comm.open(data)?.done;
}

/** Whether a kernel knows a target, asked beside the cell that it runs; null where it can not be asked there. */
export async function knows(kernel: Kernel, target: string): Promise<boolean | null> {
  const comm = commOf(kernel, target);
  if (!(await answersBeside(kernel, comm)) || !comm.subshellId || !kernel.sendShellMessage) return null;
  const header = {
    msg_id: `nbprof-${Date.now()}-${Math.random()}`,
    msg_type: "comm_info_request",
    date: new Date().toISOString(),
    session: kernel.clientId,
    username: kernel.username,
    version: "5.2",
    subshell_id: comm.subshellId,
  };
  const message = {
    channel: "shell",
    header,
    parent_header: {},
    metadata: {},
    content: { target_name: target },
    buffers: [],
  };
  const future = kernel.sendShellMessage(message, true, true) as Future<{ content: { comms?: object } }>;
  return Object.keys((await future.done)?.content.comms ?? {}).length > 0;
}
