"""grpc.reflection v1 and v1alpha: a client without .proto files learns enough to make calls."""

import unittest

import grpc
from google.protobuf import descriptor_pb2

import dynamic
from rpc import OPTIONS, Requests, error_of
from served import ServedTest

VERSIONS = 'v1', 'v1alpha'
LOOKUPS = 'embag.v1.EmbeddingBag'


class Reflection(ServedTest):
    """Tests on the shared server."""

    def setUp(self):
        super().setUp()
        self.channel = grpc.insecure_channel(self.server.address, options=OPTIONS)
        self.addCleanup(self.channel.close)

    def method(self, version):
        """Returns the method ServerReflectionInfo of a version."""
        pool = dynamic.load('grpc/reflection/%s/reflection.proto' % version)
        return dynamic.Method(
            pool, 'grpc.reflection.%s.ServerReflection' % version, 'ServerReflectionInfo')

    def ask(self, version, *requests):
        """Returns the answers to requests, each given as its fields."""
        method = self.method(version)
        return list(method.stream(self.channel, [method.request(**r) for r in requests]))

    def files(self, answer):
        """Returns the files in an answer."""
        return [descriptor_pb2.FileDescriptorProto.FromString(data)
                for data in answer.file_descriptor_response.file_descriptor_proto]

    def services(self, version='v1'):
        """Returns the names of all services."""
        answer, = self.ask(version, {'list_services': '*'})
        return [service.name for service in answer.list_services_response.service]

    def test_lists_what_can_be_called(self):
        for version in VERSIONS:
            names = self.services(version)
            self.assertLessEqual(
                {LOOKUPS, 'embag.v1.ModelAdmin', 'grpc.health.v1.Health',
                 'grpc.reflection.v1.ServerReflection', 'grpc.reflection.v1alpha.ServerReflection'},
                set(names))
            self.assertEqual(len(names), len(set(names)))

    def test_a_client_without_files_can_call_every_service(self):
        """Every method is described together with all messages that it needs."""
        for name in self.services():
            answer, = self.ask('v1', {'file_containing_symbol': name})
            pool = dynamic.pool_of(self.files(answer))
            for method in pool.FindServiceByName(name).methods:
                self.assertTrue(method.input_type.full_name)
        answer, = self.ask('v1', {'file_containing_symbol': LOOKUPS})
        method = dynamic.Method(dynamic.pool_of(self.files(answer)), LOOKUPS, 'Lookup')
        told = method.unary(self.channel, model='spec', queries=[
            {'table': 'emb_table', 'indices': [0, 2], 'num_bags': 1}])
        self.assertEqual(list(told.results[0].shape), [1, 2])

    def test_a_file_brings_what_it_imports(self):
        for version in VERSIONS:
            for ask in ({'file_by_filename': 'embag/v1/model_admin.proto'},
                        {'file_containing_symbol': 'embag.v1.ModelAdmin.LoadVersion'}):
                answer, = self.ask(version, ask)
                self.assertEqual([file.name for file in self.files(answer)],
                                 ['embag/v1/model_admin.proto', 'embag/v1/embedding_bag.proto'])
                self.assertEqual(str(answer.original_request), str(type(answer.original_request)(
                    **ask)))

    def test_says_in_the_answer_what_is_wrong(self):
        request = {'containing_type': 'embag.v1.LookupRequest', 'extension_number': 100}
        bad = [{'file_by_filename': 'embag/v1/nothing.proto'},
               {'file_containing_symbol': 'embag.v1.Nothing'},
               {'file_containing_extension': request},
               {'all_extension_numbers_of_type': 'embag.v1.Nothing'}]
        for version in VERSIONS:
            answers = self.ask(version, *bad, {}, {'host': 'h', 'list_services': ''})
            self.assertEqual([a.error_response.error_code for a in answers], [5, 5, 5, 5, 3, 0])
            self.assertIn('embag.v1.Nothing', answers[1].error_response.error_message)
            self.assertEqual(answers[5].valid_host, 'h')
            self.assertTrue(answers[5].list_services_response.service)

    def test_messages_have_no_extensions(self):
        answer, = self.ask('v1', {'all_extension_numbers_of_type': 'embag.v1.LookupRequest'})
        told = answer.all_extension_numbers_response
        self.assertEqual((told.base_type_name, list(told.extension_number)),
                         ('embag.v1.LookupRequest', []))

    def test_answers_each_request_as_it_comes(self):
        method = self.method('v1')
        requests = Requests()
        answers = method.stream(self.channel, requests)
        for _ in range(300):
            requests.put(method.request(file_containing_symbol=LOOKUPS))
            self.assertEqual(len(self.files(next(answers))), 1)
        requests.end()
        self.assertEqual(list(answers), [])

    def test_many_requests_at_once_are_all_answered(self):
        requests = [{'file_containing_symbol': LOOKUPS}] * 3000
        answers = self.ask('v1', *requests)
        self.assertEqual(len(answers), 3000)

    def test_bytes_that_are_no_request_end_the_call(self):
        path = '/grpc.reflection.v1.ServerReflection/ServerReflectionInfo'
        call = self.channel.stream_stream(path)
        code, _ = error_of(lambda: list(call(iter([b'\x1a\x09x']), timeout=30)))
        self.assertEqual(code.name, 'INTERNAL')


if __name__ == '__main__':
    unittest.main()
