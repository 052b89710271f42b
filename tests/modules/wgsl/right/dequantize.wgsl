// One byte becomes one float.
struct Block { scale: f32, zp: i32, numel: u32 }

@group(0) @binding(0) var<storage, read_write> floats: array<f32>;
@group(0) @binding(1) var<storage, read> bytes: array<u32>;
@group(0) @binding(2) var<uniform> block: Block;

@compute @workgroup_size(32)
fn dequantize(@builtin(global_invocation_id) id: vec3<u32>) {
    let at = id.x;
    if (at >= block.numel) {
        return;
    }
    let q = extractBits(bitcast<i32>(bytes[at / 4u]), 8u * (at % 4u), 8u);
    floats[at] = f32(q - block.zp) * block.scale;
}
