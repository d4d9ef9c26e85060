/*
 * What llama.cpp's own code says of a file and of a server's command line, without loading weights:
 *
 *   rigup-judge tensors FILE        name and shape of each tensor that its loader wants for a GGUF file with metadata alone
 *   rigup-judge types FILE FTYPE    the log of what llama-quantize would do, which names the type of each tensor
 *   rigup-judge sizes ARGUMENTS     of llama-server: what model, context and buffers take of each device, in bytes
 *
 * "sizes" does what llama-server does up to the load (tools/server/server.cpp and server-context.cpp, common/common.cpp).
 * Cards are those of cards.cpp, on the rules of ggml_cuda.cpp: no file needs more than its header.
 */
#include "arg.h"
#include "common.h"
#include "fit.h"
#include "ggml-backend.h"
#include "gguf.h"
#include "llama.h"
#include "speculative.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

struct llama_model;
const std::vector<std::pair<std::string, ggml_tensor *>> & llama_internal_get_tensor_map(const llama_model * model);

static int tensors(const char * file) {
    gguf_context * metadata = gguf_init_from_file(file, {true, nullptr});
    if (!metadata) return 1;
    llama_model_params params = llama_model_default_params();
    params.no_alloc     = true;
    params.n_gpu_layers = 0;
    params.load_mtp     = true;
    llama_model * model = llama_model_init_from_user(metadata, [](ggml_tensor *, void *) {}, nullptr, params);
    if (!model) return 1;
    for (const auto & [name, tensor] : llama_internal_get_tensor_map(model)) {
        printf("%s", name.c_str());
        for (int axis = 0; axis < ggml_n_dims(tensor); axis++) printf(" %lld", (long long) tensor->ne[axis]);
        printf("\n");
    }
    return 0;
}

static int types(const char * file, const char * mix) {
    llama_log_set([](ggml_log_level, const char * text, void *) { fputs(text, stdout); }, nullptr);
    llama_model_quantize_params params = llama_model_quantize_default_params();
    params.ftype   = (llama_ftype) atoi(mix);
    params.dry_run = true;
    return (int) llama_model_quantize(file, "/dev/null", &params);
}

static int say(const char * what, const char * file, const llama_model_params & model, const llama_context_params & context) {
    std::vector<ggml_backend_dev_t> devices;
    uint32_t layers = 0, trained = 0, experts = 0;
    try {
        const auto rows = common_get_device_memory_data(file, &model, &context, devices, layers, trained, experts, GGML_LOG_LEVEL_ERROR);
        for (size_t at = 0; at < rows.size(); at++) {
            printf("%s %s %zu %zu %zu\n", what, at < devices.size() ? ggml_backend_dev_name(devices[at]) : "Host", rows[at].model, rows[at].context, rows[at].compute);
        }
        return 0;
    } catch (const std::exception & error) {
        fprintf(stderr, "%s: %s\n", what, error.what());
        return 1;
    }
}

static int sizes(int argc, char ** argv) {
    common_params params;
    common_init();
    if (!common_params_parse(argc, argv, params, LLAMA_EXAMPLE_SERVER)) return 2;
    llama_numa_init(params.numa);
    const auto outputs = common_speculative_get_output_limits(params.n_batch, params.n_parallel, common_speculative_n_max(&params.speculative));
    params.n_outputs_max         = std::max<int32_t>(1, outputs.total);
    params.n_outputs_max_per_seq = std::max<int32_t>(1, outputs.per_seq);
    const auto & kinds = params.speculative.types;
    const bool own = std::find(kinds.begin(), kinds.end(), COMMON_SPECULATIVE_TYPE_DRAFT_MTP) != kinds.end();
    const auto model = common_model_params_to_llama(params);
    const auto context = common_context_params_to_llama(params);
    int failed = say("model", params.model.path.c_str(), model, context);
    if (params.speculative.has_dft() || own) {
        common_params draft = common_base_params_to_speculative(params);
        const auto draft_model = common_model_params_to_llama(draft);
        auto draft_context = common_context_params_to_llama(draft);
        if (own) draft_context.ctx_type = LLAMA_CONTEXT_TYPE_MTP;
        draft_context.n_rs_seq = 0;
        draft_context.n_ctx    = context.n_ctx;
        failed |= say(own ? "own-draft" : "draft", draft.model.path.c_str(), draft_model, draft_context);
    }
    return failed;
}

int main(int argc, char ** argv) {
    llama_backend_init();
    const std::string what = argc > 2 ? argv[1] : "";
    if (what == "tensors") return tensors(argv[2]);
    if (what == "types" && argc == 4) return types(argv[2], argv[3]);
    if (what == "sizes") return sizes(argc - 1, argv + 1);
    return 2;
}
