#!/usr/bin/env python3
"""Writes tests/data/smollm2_logits.safetensors: logits of SmolLM2's GGUF in f32 by Hugging Face transformers.

Usage: smollm2_logits.py MODEL.gguf IDS.json OUT.safetensors. Needs torch, transformers, gguf, safetensors. Not needed to build or test.
Tensors: ids (int32 [T]): the ids of the strings of IDS.json with Latin text put one after another, 192 in all; top (int32 [T, 8]): per
position the eight likeliest tokens; logits (float32 [T, 8 + 64]): their logits and those of tokens 0, 768, 1536 ...
"""
import json, sys
import numpy as np, torch
from safetensors.numpy import save_file
from transformers import AutoModelForCausalLM

folder, name = sys.argv[1].rsplit("/", 1)
model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32).eval()
ids = [i for _, ids in json.load(open(sys.argv[2])) for i in ids][:192]
with torch.no_grad():
    logits = model(torch.tensor([ids])).logits[0].numpy().astype(np.float32)
top = np.argsort(-logits, axis=1)[:, :8].astype(np.int32)
fixed = np.arange(0, 49152, 768)
save_file({"ids": np.array(ids, np.int32), "top": top,
           "logits": np.concatenate([np.take_along_axis(logits, top, 1), logits[:, fixed]], 1)}, sys.argv[3])
