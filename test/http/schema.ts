// Checks values against the part of JSON Schema that our OpenAPI document uses. Stricter in one way: a member that the
// document does not name is a fault, so that the document cannot lag behind.

type Schema = Readonly<Record<string, unknown>>;

/** What is wrong with the value, each with where it is; empty: nothing. */
export function schemaFaults(value: unknown, schema: Schema, document: Schema, at = "$"): string[] {
  const faults: string[] = [];
  for (const [keyword, argument] of Object.entries(schema)) {
    const check = KEYWORDS[keyword];
    if (check === undefined) throw new Error(`the checker does not know the keyword ${keyword}`);
    faults.push(...check({ value, argument, schema, document, at }));
  }
  return faults;
}

interface Look {
  readonly value: unknown;
  readonly argument: unknown;
  readonly schema: Schema;
  readonly document: Schema;
  readonly at: string;
}

type Check = (look: Look) => string[];

const none: Check = () => [];
const unless = (right: boolean, { at, value }: Look, what: string): string[] =>
  right ? [] : [`${at}: ${JSON.stringify(value)} ${what}`];

const KEYWORDS: Readonly<Record<string, Check>> = {
  description: none,
  example: none,
  contentMediaType: none,
  contentSchema: none,
  $ref({ value, argument, document, at }) {
    return schemaFaults(value, resolve(String(argument), document), document, at);
  },
  type(look) {
    const types = [look.argument].flat() as string[];
    return unless(
      types.some((type) => isOf(type, look.value)),
      look,
      `is no ${types.join(" or ")}`,
    );
  },
  enum: (look) => unless((look.argument as unknown[]).includes(look.value), look, "is none of the allowed"),
  const: (look) => unless(look.value === look.argument, look, `is not ${look.argument}`),
  pattern: (look) =>
    unless(
      typeof look.value !== "string" || new RegExp(String(look.argument), "u").test(look.value),
      look,
      "has another form",
    ),
  minLength: (look) =>
    unless(typeof look.value !== "string" || look.value.length >= Number(look.argument), look, "is too short"),
  maxLength: (look) =>
    unless(typeof look.value !== "string" || look.value.length <= Number(look.argument), look, "is too long"),
  minimum: (look) =>
    unless(typeof look.value !== "number" || look.value >= Number(look.argument), look, "is too small"),
  maximum: (look) =>
    unless(typeof look.value !== "number" || look.value <= Number(look.argument), look, "is too large"),
  minItems: (look) =>
    unless(!Array.isArray(look.value) || look.value.length >= Number(look.argument), look, "has too few"),
  maxItems: (look) =>
    unless(!Array.isArray(look.value) || look.value.length <= Number(look.argument), look, "has too many"),
  items({ value, argument, document, at }) {
    if (!Array.isArray(value)) return [];
    return value.flatMap((item, index) => schemaFaults(item, argument as Schema, document, `${at}[${index}]`));
  },
  required({ value, argument, at }) {
    if (!isRecord(value)) return [];
    return (argument as string[]).filter((name) => !(name in value)).map((name) => `${at}.${name} is missing`);
  },
  properties({ value, argument, document, at }) {
    if (!isRecord(value)) return [];
    return Object.entries(value).flatMap(([name, member]) => {
      const schema = (argument as Record<string, Schema>)[name];
      if (schema === undefined) return [`${at}.${name} is not in the document`];
      return schemaFaults(member, schema, document, `${at}.${name}`);
    });
  },
  oneOf: (look) => unless(fitting(look) === 1, look, `fits ${fitting(look)} of oneOf`),
  anyOf: (look) => unless(fitting(look) > 0, look, "fits none of anyOf"),
};

function fitting({ value, argument, document, at }: Look): number {
  return (argument as Schema[]).filter((schema) => schemaFaults(value, schema, document, at).length === 0).length;
}

function isOf(type: string, value: unknown): boolean {
  if (type === "null") return value === null;
  if (type === "integer") return Number.isSafeInteger(value);
  if (type === "array") return Array.isArray(value);
  if (type === "object") return isRecord(value);
  return typeof value === type;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** What "#/components/schemas/X" means. */
function resolve(pointer: string, document: Schema): Schema {
  const found = pointer
    .replace("#/", "")
    .split("/")
    .reduce<unknown>((inside, name) => (inside as Record<string, unknown> | undefined)?.[name], document);
  if (!isRecord(found)) throw new Error(`${pointer} leads nowhere`);
  return found;
}
