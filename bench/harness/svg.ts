/** What the pictures of the bench have in common: colours for light and dark pages, text, numbers. */

/** The classes of shapes and texts. A picture has its own background, so that it is legible on any page. */
const STYLE = `<style>
.background{fill:#ffffff}.text{fill:#1f2328}.muted{fill:#59636e}.grid{stroke:#d1d9e0}.spread{stroke:#1f2328}
.holdfast{fill:#0969da}.rival{fill:#aeb7c0}.baseline{fill:#ffffff;stroke:#818b98;stroke-dasharray:4 3}
.line0{stroke:#0969da}.line1{stroke:#bc4c00}.fill0{fill:#0969da}.fill1{fill:#bc4c00}
@media (prefers-color-scheme:dark){
.background{fill:#0d1117}.text{fill:#f0f6fc}.muted{fill:#9198a1}.grid{stroke:#3d444d}.spread{stroke:#f0f6fc}
.holdfast{fill:#4493f8}.rival{fill:#656c76}.baseline{fill:#0d1117;stroke:#9198a1}
.line0{stroke:#4493f8}.line1{stroke:#f0883e}.fill0{fill:#4493f8}.fill1{fill:#f0883e}
}
</style>`;

export function renderPicture(width: number, height: number, title: string, content: readonly string[]): string {
  return `${[
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" font-family="system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', 'DejaVu Sans', sans-serif" font-size="13" role="img" aria-labelledby="title">`,
    `<title id="title">${escapeText(title)}</title>`,
    STYLE,
    `<rect class="background" width="${width}" height="${height}" rx="6"/>`,
    ...content,
    "</svg>",
  ].join("\n")}\n`;
}

export interface TextStyle {
  readonly anchor?: "start" | "middle" | "end";
  readonly size?: number;
  readonly className?: string;
  readonly isBold?: boolean;
}

export function renderText(x: number, y: number, text: string, style: TextStyle = {}): string {
  const { anchor = "start", size, className = "text", isBold = false } = style;
  const attributes = [
    `class="${className}" x="${round(x)}" y="${round(y)}"`,
    ...(anchor === "start" ? [] : [`text-anchor="${anchor}"`]),
    ...(size === undefined ? [] : [`font-size="${size}"`]),
    ...(isBold ? ['font-weight="600"'] : []),
  ];
  return `<text ${attributes.join(" ")}>${escapeText(text)}</text>`;
}

export function renderLine(x1: number, y1: number, x2: number, y2: number, className: string): string {
  return `<line class="${className}" x1="${round(x1)}" y1="${round(y1)}" x2="${round(x2)}" y2="${round(y2)}"/>`;
}

export function round(figure: number): number {
  return Math.round(figure * 10) / 10;
}

function escapeText(text: string): string {
  return text.replaceAll("`", "").replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}
