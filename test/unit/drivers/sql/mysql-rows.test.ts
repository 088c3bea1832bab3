import { expect, test } from "vitest";
import { formatRows, ROW_WORDS } from "../../../../src/drivers/sql/mysql/row-format.ts";
import { StoreRefusedError } from "../../../../src/errors.ts";
import { randomId } from "../../../../src/util/ids.ts";

const makeRow = (key: string, bucket: number, ttlMs = 30_000) => ({ id: randomId(), key, bucket, ttlMs });

/** What a procedure reads by a word. */
function read(text: string, word: string): string {
  const [, start, length] = /^(?:CAST\()?SUBSTRING\(v_row, (\d+), (\d+)\)/i.exec(ROW_WORDS[word] as string) ?? [];
  return text.slice(Number(start) - 1, Number(start) - 1 + Number(length));
}

test("a procedure reads each field of each row where it was written", () => {
  const rows = [makeRow("a", 7), makeRow("a", 7), makeRow("é", 7, Number.MAX_SAFE_INTEGER), makeRow("b", 1_023, 0)];
  const text = formatRows(rows, ({ key }) => key === "é");
  const width = Number(ROW_WORDS.row_width);
  expect(text).toHaveLength(rows.length * width);
  const found = rows.map((_, index) => {
    const row = text.slice(index * width, (index + 1) * width);
    return Object.keys(ROW_WORDS)
      .filter((word) => word !== "row_width")
      .map((word) => read(row, word));
  });
  expect(found).toEqual([
    ["0007", rows[0]?.id, "0", "0000000000030000", "0", "0"],
    ["0007", rows[1]?.id, "0", "0000000000030000", "1", "0"],
    ["0007", rows[2]?.id, "1", "9007199254740991", "1", "1"],
    ["1023", rows[3]?.id, "0", "0000000000000000", "1", "1"],
  ]);
});

test("an id of another form is refused, and not shown", () => {
  const row = { ...makeRow("a", 7), id: "secret" };
  expect(() => formatRows([row])).toThrow(StoreRefusedError);
  expect(() => formatRows([row])).not.toThrow("secret");
});
