/**
 * Keys with references to the arguments of a call: "order:#{orderId}", "order:#{order.id}", "item:#{0.id}". A template is parsed
 * once and checked against the function when it is wrapped. A reference only reads properties; nothing is evaluated as code.
 */

import { describeValue } from "../util/duration.ts";
import { validateKey } from "../util/keys.ts";
import type { Parameters } from "./parameter-names.ts";

/** What the references of a template name. */
export interface TemplateTarget {
  /** How messages name it. */
  readonly subject: string;
  readonly parameters: Parameters;
  /** What to do about a reference that names no parameter. Default: refer to its position. */
  readonly remedy?: string;
}

/** A template that is bound to the parameters of a function. @throws TypeError naming the reference */
export type ResolveKey = (args: readonly unknown[]) => string;

interface Reference {
  /** As it was written, for messages. */
  readonly text: string;
  readonly position: number;
  readonly properties: readonly string[];
}

const REFERENCE = /#\{([^{}]*)\}/g;
/** What encodeKeyPart() leaves in no value. */
const SEPARATOR = /[:/#]/;
const USE_POSITIONS = "minifiers and other decorators change names, so refer to its position, such as #{0}";
const PATH = /^(?:\d{1,3}|[\p{ID_Start}$_][\p{ID_Continue}$]*)(?:\.[\p{ID_Start}$_][\p{ID_Continue}$]*)*$/u;
/** They lead from a value to its class, and never to a part of a key. */
const FORBIDDEN_PROPERTIES: readonly string[] = ["__proto__", "constructor", "prototype"];

/**
 * Parses a template and binds its references to the target's parameters.
 * @throws TypeError if the template is malformed, or a reference names no parameter
 */
export function parseKeyTemplate(template: string, target: TemplateTarget): ResolveKey {
  const { subject } = target;
  const literals: string[] = [];
  const references: Reference[] = [];
  let end = 0;
  for (const match of template.matchAll(REFERENCE)) {
    const literal = requireLiteral(template.slice(end, match.index), template, subject);
    if (references.length > 0 && !SEPARATOR.test(literal)) {
      throw new TypeError(
        `the key ${JSON.stringify(template)} of ${subject} needs ":", "/" or "#" before ${match[0]}: else different values would share a key`,
      );
    }
    literals.push(literal);
    references.push(parseReference(match[1] as string, target));
    end = match.index + match[0].length;
  }
  const lastLiteral = requireLiteral(template.slice(end), template, subject);
  if (references.length === 0) validateKey(template);
  return (args) => {
    const parts = references.map((reference, index) => literals[index] + formatPart(reference, args, subject));
    return parts.join("") + lastLiteral;
  };
}

function requireLiteral(text: string, template: string, subject: string): string {
  if (!text.includes("#{")) return text;
  throw new TypeError(
    `the key ${JSON.stringify(template)} of ${subject} has a reference that does not end: write #{name}, #{name.property} or #{0}`,
  );
}

function parseReference(path: string, target: TemplateTarget): Reference {
  const { subject } = target;
  const text = `#{${path}}`;
  if (!PATH.test(path)) {
    throw new TypeError(`${text} of ${subject} is not a reference: write #{name}, #{name.property} or #{0.property}`);
  }
  const [root, ...properties] = path.split(".") as [string, ...string[]];
  const forbidden = properties.find((property) => FORBIDDEN_PROPERTIES.includes(property));
  if (forbidden !== undefined) throw new TypeError(`${text} of ${subject} must not read ${forbidden}`);
  return { text, position: findPosition(root, text, target), properties };
}

function findPosition(root: string, text: string, target: TemplateTarget): number {
  const { subject, parameters, remedy = USE_POSITIONS } = target;
  const { names, mayHaveMore } = parameters;
  if (/^\d/.test(root)) {
    const position = Number(root);
    if (position < names.length || mayHaveMore) return position;
    throw new TypeError(`${text} names no parameter of ${subject}, which has ${names.length}, counted from 0`);
  }
  const position = names.indexOf(root);
  if (position >= 0) return position;
  const known = names.filter((name) => name !== null);
  const list =
    known.length === 0 ? "whose parameters have no readable names" : `whose parameters are ${known.join(", ")}`;
  throw new TypeError(`${text} names no parameter of ${subject}, ${list}: ${remedy}`);
}

function formatPart({ text, position, properties }: Reference, args: readonly unknown[], subject: string): string {
  let value = args[position];
  for (const property of properties) {
    if (value === undefined || value === null) break;
    value = (value as Readonly<Record<string, unknown>>)[property];
  }
  if (isKeyPart(value)) return encodeKeyPart(String(value));
  const expected = "text that is not empty, a finite number, a bigint, true or false";
  throw new TypeError(`${text} of ${subject} must be ${expected}, not ${describeValue(value)}`);
}

/** An object would read "[object Object]", and so lock one key for all of them. */
function isKeyPart(value: unknown): boolean {
  if (typeof value === "string") return value !== "";
  if (typeof value === "number") return Number.isFinite(value);
  return typeof value === "bigint" || typeof value === "boolean";
}

/** So that no value can imitate the separators of a key: without it "a:#{x}:#{y}" had one key for "1:2", "3" and "1", "2:3". */
function encodeKeyPart(text: string): string {
  return text.replace(/[:/#%]/g, encodeURIComponent);
}
