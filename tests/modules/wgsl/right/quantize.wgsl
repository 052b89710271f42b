// Four floats become the four bytes of one word.
struct Block { inv_scale: f32, zp: i32, words: u32 }

@group(0) @binding(0) var<storage, read_write> bytes: array<u32>;
@group(0) @binding(1) var<storage, read> floats: array<f32>;
@group(0) @binding(2) var<uniform> block: Block;

fn quantized(x: f32) -> u32 {
    return u32(clamp(i32(round(x * block.inv_scale)) + block.zp, -128, 127)) & 0xffu;
}

@compute @workgroup_size(32)
fn quantize(@builtin(global_invocation_id) id: vec3<u32>) {
    let word = id.x;
    if (word >= block.words) {
        return;
    }
    var packed = 0u;
    for (var lane = 0u; lane < 4u; lane++) {
        packed |= quantized(floats[4u * word + lane]) << (8u * lane);
    }
    bytes[word] = packed;
}
