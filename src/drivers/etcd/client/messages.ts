/** The messages of etcd's JSON gateway that are used here: bytes are base64, 64-bit numbers are decimal strings, zeros are left out. */

/** Of each answer. */
export interface Header {
  readonly revision: string;
  /** The term of the member that answered. */
  readonly raft_term: string;
}

export interface KeyValue {
  readonly key: string;
  readonly value?: string;
  readonly create_revision: string;
  readonly mod_revision: string;
  /** Absent: none. */
  readonly lease?: string;
}

export interface RangeResponse {
  readonly kvs?: readonly KeyValue[];
  /** How many keys the range has, whatever the limit. */
  readonly count?: string;
}

export interface TxnResponse {
  readonly header: Header;
  readonly succeeded?: boolean;
  readonly responses?: readonly OperationResponse[];
}

export interface OperationResponse {
  readonly response_range?: RangeResponse;
  readonly response_delete_range?: { readonly deleted?: string };
  readonly response_txn?: Omit<TxnResponse, "header">;
}

export type Compare = Readonly<Record<string, string>>;

/** One operation of a transaction. */
export type Operation =
  | { readonly request_range: Readonly<Record<string, string | number | boolean>> }
  | { readonly request_put: Readonly<Record<string, string | boolean>> }
  | { readonly request_delete_range: Readonly<Record<string, string>> }
  | { readonly request_txn: Txn };

export interface Txn {
  readonly compare?: readonly Compare[];
  readonly success?: readonly Operation[];
  readonly failure?: readonly Operation[];
}

/** As the server counts them: at most this many operations in a transaction. */
export const MAX_TXN_OPERATIONS = 128;

export function encodeText(text: string): string {
  return Buffer.from(text, "utf8").toString("base64");
}

export function decodeText(base64 = ""): string {
  return Buffer.from(base64, "base64").toString("utf8");
}

/** The range of all keys that begin with this text. */
export function rangeOf(prefix: string): { readonly key: string; readonly range_end: string } {
  // "\0" is the first key and the end of all
  if (prefix === "") return { key: encodeText("\0"), range_end: encodeText("\0") };
  const end = Buffer.from(prefix, "utf8");
  // no byte of UTF-8 is 0xff
  end[end.length - 1] = (end[end.length - 1] as number) + 1;
  return { key: encodeText(prefix), range_end: end.toString("base64") };
}

/** The key does not exist; of a range: none of its keys does. */
export function isAbsent(range: { readonly key: string; readonly range_end?: string }): Compare {
  return { ...range, target: "CREATE", result: "EQUAL", create_revision: "0" };
}

/** The key exists and was created by this revision. */
export function wasCreatedAt(name: string, revision: bigint): Compare {
  return { key: encodeText(name), target: "CREATE", result: "EQUAL", create_revision: String(revision) };
}

/** The key belongs to this lease. */
export function belongsTo(name: string, leaseId: string): Compare {
  return { key: encodeText(name), target: "LEASE", result: "EQUAL", lease: leaseId };
}

export function readKey(name: string): Operation {
  return { request_range: { key: encodeText(name) } };
}

export function deleteKey(name: string): Operation {
  return { request_delete_range: { key: encodeText(name) } };
}

/** How many keys an operation has deleted. */
export function countDeleted(response: OperationResponse | undefined): number {
  return Number(response?.response_delete_range?.deleted ?? 0);
}
