#!/usr/bin/env python3
"""Writes tests/data/smollm2_ids.json: 200 strings and their token ids by llama.cpp (PyPI `xllamacpp`).

Usage: smollm2_ids.py MODEL.gguf OUT.json. Not needed to build or test.
Digits, spaces, code, accents, Chinese, emoji, control tokens, and mixtures drawn from them with a fixed seed.
"""
import json, random, sys, urllib.request
import xllamacpp

STRINGS = [
    # digits
    "Hello world", "0", "1234567890", "3.14159265", "1,000,000", "1e-10", "0x1F600", "10:45pm", "2026-11-30",
    "+44 20 7946 0958", "v1.2.3", "12th of May", "x2y3z4", "½ ¾ ²³ ٣٤٥ १२३", "Ⅷ ⑨", " 7", "7 ", "a1", "1a", "12 34  56",
    # spaces
    " leading", "trailing ", "  two", "   three   spaces   ", "a  b   c    d", "\t", "\ta\tb", "\n", "\n\n", "a\nb",
    "a\n\n\nb", "\r\n", "a \n b", "     ", "tab\t\tspace  \t x", "nbsp\u00a0here", "em\u2003space", "zero\u200bwidth",
    # code
    'fn main() { println!("{}", 1 + 2); }', "for (int i = 0; i < n; i++) { a[i] += b[i]; }", "def f(x):\n    return x ** 2",
    "if x==1:\n\tpass", "#include <stdio.h>", "SELECT * FROM t WHERE id = 42;", "let mut v: Vec<u8> = vec![0; 16];",
    '<div class="a">text</div>', '{"key": [1, 2.5, null]}', "a->b && c || !d", "// comment", "/* c */", "#!/bin/bash",
    "$HOME/.config", "https://example.org/a?b=c&d=1#e", "user@example.com", "C:\\Windows\\system32",
    "snake_case_name camelCaseName PascalCase", "x = y if z else w", "0b1010 & 0xff << 3", "\\frac{a}{b}", "`code`",
    "**bold** _it_", "--flag=value",
    # accents and other scripts
    "café", "naïve façade", "Ünïcödé", "Ærøskøbing", "Þórr", "Příliš žluťoučký kůň", "Zażółć gęślą jaźń",
    "İstanbul ığdır", "e\u0301 combining", "ﬁ ligature", "Ελληνικά", "Русский текст", "Привет, мир!", "עברית", "العربية",
    "हिन्दी", "ไทย", "한국어 텍스트", "ქართული", "Հայերեն", "አማርኛ", "Tiếng Việt",
    # Chinese and Japanese
    "你好", "你好，世界！", "中文字符测试", "我喜欢吃苹果。", "人工智能", "三百六十五天", "２０２６年", "日本語のテキスト",
    "こんにちは世界", "カタカナ", "漢字とかな", "繁體中文", "混合English中文123",
    # emoji and symbols
    "😀", "😀😃😄", "👍🏽", "👨‍👩‍👧‍👦", "🇬🇧🇫🇷", "❤️", "✓ ✗ → ← ∞ ≠ ∑", "🤖 beep 42", "text😀text", "¯\\_(ツ)_/¯", "☃",
    # contractions, control tokens, punctuation
    "I'm", "you're", "they've", "we'll", "he'd", "it's", "don't", "I'M", "'tis", "''", "rock'n'roll", "'s", "’s", "O’Reilly",
    "<|im_start|>user\nHello<|im_end|>\n", "<|endoftext|>", "<|im_end|>", "a<|im_start|>b", "<|im_start|", "<|nota|>",
    "<repo_name>x", "<jupyter_code>print(1)", "!!!", "...", "?!", "—–-", "“quoted”", "‘single’", "()[]{}", "@#$%^&*", "~~~",
    "a.b.c", "...and", "Mr. Smith's 3 cats", "The quick brown fox jumps over the lazy dog.",
    "antidisestablishmentarianism", "supercalifragilisticexpialidocious", "a" * 32, "AaBbCc", "ALL CAPS TEXT",
    "The 1st, 2nd and 3rd of 100", "In the beginning God created the heaven and the earth.", "\u0007bell", "\ufeffbom",
    "\u202ertl", "\U0001d54f\U0001d552",
]
rng = random.Random(1)
while len(STRINGS) < 200:
    STRINGS.append(rng.choice(["", " ", "\n"]).join(rng.sample(STRINGS[:150], rng.randint(2, 5))))

params = xllamacpp.CommonParams()
params.model.path, params.n_ctx, params.port = sys.argv[1], 512, 0
server = xllamacpp.Server(params)
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def ids(text):
    body = json.dumps({"content": text, "add_special": False, "parse_special": True}).encode()
    request = urllib.request.Request(server.listening_address + "/tokenize", body, {"Content-Type": "application/json"})
    return json.load(opener.open(request))["tokens"]


assert len(set(STRINGS)) == 200
with open(sys.argv[2], "w") as out:
    out.write("[\n" + ",\n".join(json.dumps([s, ids(s)], ensure_ascii=False) for s in STRINGS) + "\n]\n")
