/** The bytes of an answer as they come: lines, and between them as many bytes as a line says. */

export class Lines {
  private held: Uint8Array = new Uint8Array();

  constructor(private readonly reader: ReadableStreamDefaultReader<Uint8Array>) {}

  private async more(): Promise<boolean> {
    const { done, value } = await this.reader.read();
    if (done) return false;
    const joined = new Uint8Array(this.held.length + value.length);
    joined.set(this.held);
    joined.set(value, this.held.length);
    this.held = joined;
    return true;
  }

  async line(): Promise<string | null> {
    for (;;) {
      const end = this.held.indexOf(10);
      if (end >= 0) {
        const text = new TextDecoder().decode(this.held.subarray(0, end));
        this.held = this.held.slice(end + 1);
        return text;
      }
      if (!(await this.more())) return null;
    }
  }

  async bytes(count: number): Promise<Uint8Array> {
    const parts: Uint8Array[] = [this.held];
    let here = this.held.length;
    while (here < count) {
      const { done, value } = await this.reader.read();
      if (done) throw new Error("The connection to the server was lost before the profile was loaded.");
      parts.push(value);
      here += value.length;
    }
    const bytes = new Uint8Array(here);
    let offset = 0;
    for (const part of parts) {
      bytes.set(part, offset);
      offset += part.length;
    }
    this.held = bytes.subarray(count);
    return bytes.subarray(0, count);
  }
}
