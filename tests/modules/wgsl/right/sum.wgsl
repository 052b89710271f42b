// a + alpha * b, each with a quantization of its own.
struct Block {
    a_scale: f32, a_zp: i32, b_scale: f32, b_zp: i32, alpha: f32, inv_out_scale: f32, out_zp: i32, words: u32,
}

@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read> b: array<u32>;
@group(0) @binding(2) var<uniform> block: Block;
@group(0) @binding(3) var<storage, read_write> sum: array<u32>;

override size: u32 = 64u;

fn steps(word: u32, lane: u32, zp: i32) -> f32 {
    return f32(extractBits(bitcast<i32>(word), 8u * lane, 8u) - zp);
}

@compute @workgroup_size(size)
fn add(@builtin(global_invocation_id) id: vec3<u32>) {
    let word = id.x;
    if (word >= block.words) {
        return;
    }
    var packed = 0u;
    for (var lane = 0u; lane < 4u; lane++) {
        let left = block.a_scale * steps(a[word], lane, block.a_zp);
        let right = block.b_scale * steps(b[word], lane, block.b_zp);
        let real = left + block.alpha * right;
        let q = clamp(i32(round(real * block.inv_out_scale)) + block.out_zp, -128, 127);
        packed |= (u32(q) & 0xffu) << (8u * lane);
    }
    sum[word] = packed;
}
